"""Plays the actions of a file."""

from __future__ import annotations

from pathlib import Path

from runtime.agents.base import Act, Agent, Turn
from runtime.errors import BadInput


class ScriptedAgent(Agent):
    """`scripted:FILE`: UTF-8 text, one action label a line, empty lines left out.

    Every match starts at the first line. Each turn in which the seat has a choice takes the next
    one; turns with a single legal action take none.
    """

    quick = True

    def __init__(self, file: Path) -> None:
        try:
            text = file.read_text(encoding="utf-8-sig")
        except OSError as error:
            raise BadInput(f"{file}: {error.strerror}; name a readable file of actions") from error
        except UnicodeDecodeError as error:
            raise BadInput(f"{file}: byte {error.start} is not UTF-8; save it as UTF-8") from error
        self._file = file
        self._actions = [
            (number, line.strip())
            for number, line in enumerate(text.split("\n"), start=1)
            if line.strip()
        ]

    async def act(self, turn: Turn) -> Act:
        """Take the file's next action.

        Raises:
            BadInput: The file has no more actions, or the next one is not legal.
        """
        if turn.index >= len(self._actions):
            raise BadInput(
                f"{self._file}: it has {len(self._actions)} actions and match {turn.match} needs"
                " another; add lines"
            )
        number, action = self._actions[turn.index]
        legal = [option.id for option in turn.options]
        if action not in legal:
            shown = ", ".join(map(repr, legal[:12])) + (", ..." if len(legal) > 12 else "")
            raise BadInput(
                f"{self._file}, line {number}: {action!r} is not legal in match {turn.match};"
                f" legal: {shown}"
            )
        return Act(action)
