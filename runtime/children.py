"""One command in two processes whose sets and dictionaries are hashed by different seeds."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from typing import NamedTuple

HASH_SEEDS = ("1", "2")


class Ended(NamedTuple):
    """A process that has ended; `how` says with what, in words."""

    code: int
    said: str
    complaint: str

    @property
    def how(self) -> str:
        """Its signal's name or its code, and the last line that it wrote on standard error."""
        how = signal.Signals(-self.code).name if self.code < 0 else f"code {self.code}"
        return f"{how} ({(self.complaint.strip().splitlines() or ['it said nothing'])[-1]})"


def run_under_hash_seeds(command: Sequence[str]) -> list[Ended]:
    """Run it side by side under each of `HASH_SEEDS`, and give what came of it in their order."""
    children = [
        subprocess.Popen(
            command,
            env=os.environ | {"PYTHONHASHSEED": seed},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for seed in HASH_SEEDS
    ]
    try:
        ended: list[Ended] = []
        for child in children:
            said, complaint = child.communicate()
            ended.append(Ended(child.returncode, said, complaint))
        return ended
    finally:
        for child in children:
            child.kill()
            child.communicate()
