"""The command `ostinato`."""

from __future__ import annotations

import os
import signal
import sys
from io import TextIOWrapper
from types import FrameType

INTERRUPTED = 130
"""The exit code of an interrupt, as shells have it."""


def main() -> None:
    """Run the command of the process's arguments and exit.

    The commands take half a second to import, in which an interrupt is one line too.
    """
    # A script's background jobs ignore SIGINT, and SIGTERM would then be lost with it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, _terminate)
    if isinstance(sys.stdout, TextIOWrapper):  # what its encoding lacks is no reason to fail
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        from runtime.cli.app import run

        code = run(sys.argv[1:])
    except KeyboardInterrupt:
        sys.stderr.write("interrupted; what was acknowledged is in the log\n")
        code = INTERRUPTED
    sys.exit(code)


def _terminate(signum: int, frame: FrameType | None) -> None:
    """Let SIGTERM end everything the way Ctrl-C does: the event loop unwinds, children go."""
    os.kill(os.getpid(), signal.SIGINT)
