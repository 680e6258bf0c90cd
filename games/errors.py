"""Errors of games.

GamesError                 games/error
├── UnknownGame            games/unknown_game
├── BadGameParameters      games/bad_parameters
├── UnsupportedGame        games/unsupported
├── IllegalAction          games/illegal_action
├── NotYourTurn            games/not_your_turn
├── BadRecord              games/bad_record       a match in a file of another kind
└── ConformanceError       games/conformance
"""

from __future__ import annotations


class GamesError(Exception):
    """Root of what goes wrong in games. `code` is stable; the message names the remedy."""

    code = "games/error"


class UnknownGame(GamesError):
    """No game of that name is known."""

    code = "games/unknown_game"


class BadGameParameters(GamesError):
    """A game was named with parameters that it does not take."""

    code = "games/bad_parameters"


class UnsupportedGame(GamesError):
    """The protocol cannot hold this game, or the library that holds it is missing."""

    code = "games/unsupported"


class IllegalAction(GamesError):
    """The action is not among the legal options; the state is unchanged."""

    code = "games/illegal_action"

    def __init__(self, action: str, legal: tuple[str, ...]) -> None:
        shown = ", ".join(repr(label) for label in legal[:12]) + (
            ", ..." if len(legal) > 12 else ""
        )
        super().__init__(f"{action!r} is not a legal action here; legal: {shown or 'none'}")
        self.action = action
        self.legal = legal


class NotYourTurn(GamesError):
    """Options were asked of a state in which nobody, or chance, is to act."""

    code = "games/not_your_turn"


class ConformanceError(GamesError):
    """A law that every game must keep is broken; names the law, the seed and the turn."""

    code = "games/conformance"


class BadRecord(GamesError):
    """A match recorded elsewhere cannot be taken over as it stands.

    Attributes:
        number: Which of the file's matches it is, from 1; 0 for the file as a whole.
        place: Where in it: a line, a move, an action.
    """

    code = "games/bad_record"

    def __init__(self, number: int, place: str, what: str) -> None:
        match = f"match {number}" if number else ""
        super().__init__(f"{', '.join(filter(None, (match, place)))}: {what}")
        self.number = number
        self.place = place
        self.what = what
