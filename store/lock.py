"""One process writes a log; a second one is told who does."""

from __future__ import annotations

import fcntl
import os
import socket
from pathlib import Path

from store.errors import LogLocked, LogUnavailable


class FileLock:
    """An exclusive lock on `FILE.lock`, which the system drops when its process ends.

    The lock file stays behind: to remove it would let two processes lock two files of one name.

    Raises:
        LogLocked: Another process, or another log of this process, holds it.
        LogUnavailable: The lock file cannot be made.
    """

    def __init__(self, path: Path) -> None:
        lock = path.with_name(f"{path.name}.lock")
        try:
            self._file = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise LogUnavailable(
                f"{lock} cannot be made ({error.strerror}); check the folder, or open it to read"
            ) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.read(self._file, 400).decode(errors="replace").strip() or "another process"
            os.close(self._file)
            if not isinstance(error, BlockingIOError):
                raise LogUnavailable(f"{lock} cannot be locked ({error.strerror})") from error
            raise LogLocked(
                f"{path} is being written by {holder}; wait for it, or name another log"
            ) from error
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)

    def release(self) -> None:
        """Let others write."""
        os.close(self._file)
