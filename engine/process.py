"""Child processes that do not outlive their parent, whatever ends it.

On Linux the kernel kills a child whose parent died (the parent-death signal), which needs no help
from the child and holds for programs of others, such as nats-server. Elsewhere, and for our own
children everywhere, the end of a pipe says the same: `exit_with_parent`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import anyio

PARENT_PIPE: Final = "OSTINATO_PARENT_PIPE"

# Runs between fork and the program: asks for the signal, makes sure that the parent did not die
# before that took effect, then becomes the program.
_TRAMPOLINE: Final = """\
import os, sys
parent, command = int(sys.argv[1]), sys.argv[2:]
if sys.platform == "linux":
    import ctypes
    ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)
if os.getppid() != parent:
    os._exit(1)
os.execv(command[0], command)
"""


class Child:
    """One running child; make it with `start`."""

    def __init__(
        self, popen: subprocess.Popen[bytes], log: Path, log_start: int, pipe: int
    ) -> None:
        self._popen = popen
        self._pipe = pipe
        self.log = log
        self._log_start = log_start

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._popen.pid

    @property
    def returncode(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        return self._popen.poll()

    def tail(self, lines: int = 12) -> str:
        """Give the last lines that it wrote."""
        try:
            text = self.log.read_bytes()[self._log_start :][-8192:].decode(errors="replace")
        except OSError:
            return ""
        return "\n".join(text.strip().splitlines()[-lines:])

    async def wait(self) -> int:
        """Wait for its end and give its exit code."""
        # a poll, because asyncio's child watcher has to own a process from its start
        while (code := self._popen.poll()) is None:  # noqa: ASYNC110
            await anyio.sleep(0.02)
        return code

    async def stop(self, *, grace_s: float = 5.0) -> None:
        """Ask it to end, and kill it if it has not within the grace time."""
        with anyio.CancelScope(shield=True):
            if self._popen.poll() is None:
                self._popen.send_signal(signal.SIGTERM)
                with anyio.move_on_after(grace_s):
                    await self.wait()
            self.kill()

    def kill(self) -> None:
        """End it at once and give up what belongs to it."""
        if self._popen.poll() is None:
            self._popen.kill()
            self._popen.wait()
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1


def start(
    command: Sequence[str], *, log: Path, environment: Mapping[str, str] | None = None
) -> Child:
    """Start a program that ends when this process does; its output goes to the file `log`.

    Call it from the main thread: the signal is bound to the thread that starts the child.

    Raises:
        OSError: The log cannot be written.
    """
    read_end, write_end = os.pipe()
    variables = {**os.environ, **(environment or {}), PARENT_PIPE: str(read_end)}
    with log.open("ab") as output:
        log_start = output.tell()
        popen = subprocess.Popen(
            [sys.executable, "-S", "-E", "-c", _TRAMPOLINE, str(os.getpid()), *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=variables,
            pass_fds=(read_end,),
            # Ctrl-C goes to the parent alone, which ends its children in order
            start_new_session=True,
        )
    os.close(read_end)
    return Child(popen, log, log_start, write_end)


def exit_with_parent() -> None:
    """In a child of `start`: end this process at once when the parent is gone.

    A thread of its own waits, so that neither a busy event loop nor a long computation delays it.
    """
    text = os.environ.pop(PARENT_PIPE, None)
    if text is None:
        return

    def wait() -> None:
        while os.read(int(text), 1):
            pass
        os._exit(1)

    threading.Thread(target=wait, name="parent-watch", daemon=True).start()
