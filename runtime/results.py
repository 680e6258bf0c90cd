"""What the matches of a run came to: sums alone, however many matches there are."""

from __future__ import annotations

import msgspec

from runtime.match import MatchResult

SHOWN = 3  # paused matches that are named


class SeatResults(msgspec.Struct, frozen=True, kw_only=True):
    """One seat over the matches that ended; `returned` is the sum of its returns."""

    returned: float = 0.0
    won: int = 0
    drawn: int = 0

    def plus(self, returns: tuple[float, ...], seat: int) -> SeatResults:
        """Count one match."""
        most, least = max(returns), min(returns)
        return SeatResults(
            returned=self.returned + returns[seat],
            won=self.won + (returns[seat] == most > least),
            drawn=self.drawn + (most == least),
        )


class Results(msgspec.Struct, frozen=True, kw_only=True):
    """Many matches.

    Attributes:
        turns: Those of chance counted.
        ended: Matches that did not pause.
        paused: The first of those that did.
    """

    seats: tuple[SeatResults, ...]
    matches: int = 0
    turns: int = 0
    ended: int = 0
    paused: tuple[MatchResult, ...] = ()

    def plus(self, result: MatchResult) -> Results:
        """Count one match."""
        seats, ended, paused = self.seats, self.ended, self.paused
        if result.end == "paused":
            paused = (*paused, result)[:SHOWN]
        else:
            ended += 1
            seats = tuple(each.plus(result.returns, seat) for seat, each in enumerate(seats))
        return Results(
            seats=seats,
            matches=self.matches + 1,
            turns=self.turns + result.turns,
            ended=ended,
            paused=paused,
        )
