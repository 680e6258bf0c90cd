"""A person at the terminal."""

from __future__ import annotations

import os
import sys

import anyio
import msgspec
from rich.console import Console

from runtime.agents.base import Act, Agent, Turn
from runtime.errors import BadInput
from runtime.settings import Seconds

_LONGEST = 4_096  # bytes of a line


class HumanSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What `human:NAME=VALUE` can say.

    Attributes:
        deadline: Seconds for one turn.
    """

    deadline: Seconds = 3_600.0


class HumanAgent(Agent):
    """`human`, `human:deadline=SECONDS`: shows the seat's own view and reads a number or a label.

    It writes to standard error, so that standard output has the results alone. Where a game hides
    something, a terminal shows the view on a page of its own, which is gone after the turn.
    """

    interactive = True

    def __init__(
        self, settings: HumanSettings, *, source: int | None = None, console: Console | None = None
    ) -> None:
        """Make it; `source` is a file descriptor, by default that of standard input."""
        self.deadline_s = settings.deadline
        self._source = source
        self._console = console or Console(stderr=True)

    async def act(self, turn: Turn) -> Act:
        """Ask until the answer is an option; raises BadInput at the end of the input."""
        if not turn.facts.hidden or not self._console.is_terminal:
            return await self._ask(turn)
        with self._console.screen(hide_cursor=False):
            self._say(f"Seat {turn.seat} of {turn.match}: press Enter when only you can see this.")
            await self._line(turn)
            return await self._ask(turn)

    async def _ask(self, turn: Turn) -> Act:
        self._console.rule(f"seat {turn.seat} of {turn.match}", align="left")
        self._say(turn.view.text.strip("\n"))
        self._say("")
        for number, option in enumerate(turn.options, start=1):
            about = f"  ({option.description})" if option.description else ""
            self._say(f"{number:>4}  {option.id}{about}")
        labels = {option.id.strip(): option.id for option in turn.options}
        numbers = {str(number): option.id for number, option in enumerate(turn.options, start=1)}
        while True:
            self._console.print("Your choice, number or label: ", end="")
            said = await self._line(turn)
            chosen = labels.get(said) or numbers.get(said)
            if chosen is not None:
                return Act(chosen)
            self._say(f"{said!r} is none of the {len(labels)} options.")

    def _say(self, text: str) -> None:
        shown = text.encode(errors="backslashreplace").decode()
        self._console.print(shown, markup=False, highlight=False, soft_wrap=True)

    async def _line(self, turn: Turn) -> str:
        """Read one line, byte by byte, so that what follows it stays for whoever reads next."""
        source = sys.stdin.fileno() if self._source is None else self._source
        line = bytearray()
        while not line.endswith(b"\n"):
            await _until_readable(source)
            byte = os.read(source, 1)
            if not byte and not line:
                raise BadInput(
                    f"standard input ended, and seat {turn.seat} of match {turn.match} is to act;"
                    " the same command goes on there"
                )
            line += byte
            if not byte or len(line) > _LONGEST:
                break
        return line.decode(errors="replace").strip()


async def _until_readable(source: int) -> None:
    try:
        await anyio.wait_readable(source)
    except PermissionError:  # a regular file, which is always readable
        await anyio.lowlevel.checkpoint()
