"""`ostinato serve` beside a test."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import httpx

from tests.support.command import Command, wait_for


@contextmanager
def serving(
    command: Command,
    *arguments: object,
    model: str = "mock:seed=1",
    ready: bool = True,
    within_s: float = 60,
) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Run the server on a free port; give its address and process."""
    with command.started("serve", "--port", 0, "--model", model, *arguments) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        found = re.search(r"http://[0-9.:]+", line)
        assert found, line + process.stderr.read()
        url = found[0]
        if ready:
            wait_for(
                lambda: httpx.get(url + "/health").status_code == 200 or process.poll() is not None,
                within_s=within_s,
            )
        yield url, process
