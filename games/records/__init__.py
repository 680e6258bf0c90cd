"""Matches that were recorded elsewhere, as files of other kinds hold them.

A record names its game and, for each state in turn, the label of what was done. It never guesses:
what cannot be read, is not legal or contradicts itself is a `BadRecord` that names the place.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from games.base import State
from games.errors import BadRecord

__all__ = ["BadRecord", "Record"]


class Record(Protocol):
    """One recorded match."""

    @property
    def format(self) -> str:
        """The kind of file that it is from: `pgn` or `phh`."""
        ...

    @property
    def number(self) -> int:
        """Which of the file's matches it is, from 1."""
        ...

    @property
    def game(self) -> str:
        """The id of the game, its parameters included."""
        ...

    @property
    def names(self) -> tuple[str, ...]:
        """Who played, by seat."""
        ...

    @property
    def tags(self) -> Mapping[str, str]:
        """What else the record says of the match."""
        ...

    def label(self, state: State, turn: int) -> str | None:
        """Give the action, or outcome of chance, of turn `turn`; None where the record ends.

        Args:
            state: What the labels before it led to from the game's first state.
            turn: Counted from 0, chance included.

        Raises:
            BadRecord: It is not legal here, or no label stands for it.
        """
        ...

    def finish(self, state: State) -> str:
        """Say how the match ended: empty if by the rules, else why the record ends there.

        Raises:
            BadRecord: The record tells of another end than the state after its last label.
        """
        ...
