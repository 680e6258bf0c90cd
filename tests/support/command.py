"""The command `ostinato` as a person runs it: its own process, in a folder of its own."""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

OSTINATO = Path(sys.executable).with_name("ostinato")
MARK = "ACCEPTANCE_MARK"
ERROR = re.compile(r"error: (?P<message>\S.*) \[(?P<code>[a-z_]+/[a-z_]+)\]")


class Done(NamedTuple):
    """A command that has ended."""

    code: int
    stdout: str
    stderr: str

    @property
    def document(self) -> Any:
        """The one JSON document that `--json` promises."""
        assert self.stdout.count("\n") == 1, self
        assert self.stdout.endswith("\n"), self
        return json.loads(self.stdout)

    @property
    def documents(self) -> list[Any]:
        """One JSON document a line."""
        return [json.loads(line) for line in self.stdout.splitlines()]

    def refused(self, code: str, *, exit: int = 1) -> str:
        """Check that it ended with one line of error, and give the line's message."""
        assert self.code == exit, self
        found = ERROR.fullmatch(self.stderr.rstrip("\n"))
        assert found, self
        assert found["code"] == code, self
        return found["message"]


class Command:
    """Runs commands in `folder`, with `folder/home` as the data folder.

    All that they start inherits a mark in its environment, by which `running` finds it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.mark = secrets.token_hex(8)
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("OSTINATO_")}
        self.environment = {
            **inherited,
            "OSTINATO_HOME": str(self.home),
            "OMP_NUM_THREADS": "1",
            MARK: self.mark,
        }

    def __call__(
        self, *arguments: object, within_s: float = 120.0, typed: str = "", **variables: str
    ) -> Done:
        """Run a command to its end, with what is typed as its input."""
        done = subprocess.run(
            self._command(arguments),
            cwd=self.folder,
            env=self.environment | variables,
            input=typed,
            capture_output=True,
            text=True,
            timeout=within_s,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return Done(done.returncode, done.stdout, done.stderr)

    @contextmanager
    def started(
        self, *arguments: object, before: Sequence[str] = (), **variables: str
    ) -> Iterator[subprocess.Popen[str]]:
        """Run a command beside the test; whatever is left of it at the end is killed.

        `before` is a program that becomes the command which follows it.
        """
        process = subprocess.Popen(
            [*before, *self._command(arguments)],
            cwd=self.folder,
            env=self.environment | variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    def running(self) -> dict[int, str]:
        """Give the processes that carry the mark, with their command lines."""
        found: dict[int, str] = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal():
                try:
                    if f"{MARK}={self.mark}".encode() in (entry / "environ").read_bytes():
                        line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                        found[int(entry.name)] = line
                except OSError:
                    continue  # it has ended
        return found

    def kill_rest(self) -> None:
        """End whatever is still there."""
        for pid in self.running():
            os.kill(pid, signal.SIGKILL)

    def _command(self, arguments: tuple[object, ...]) -> list[str]:
        return [str(OSTINATO), *map(str, arguments)]


def finished(process: subprocess.Popen[str], *, within_s: float = 120.0) -> Done:
    """Wait for the end of a command that runs beside the test."""
    stdout, stderr = process.communicate(timeout=within_s)
    assert "Traceback" not in stderr, stderr
    return Done(process.returncode, stdout, stderr)


def wait_for(condition: Callable[[], object], *, within_s: float = 120.0) -> None:
    """Look until a condition holds; the deadline only bounds a failing test."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        time.sleep(0.01)
