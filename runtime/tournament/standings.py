"""What a tournament's matches add up to; sums alone, however many matches there are."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from runtime.tournament.plan import Fixture
from store.events import (
    ChanceDrawn,
    DecisionAnswered,
    DecisionRequested,
    MatchEnded,
    TurnTaken,
)
from store.log import Recorded


class Played(msgspec.Struct, frozen=True, kw_only=True):
    """One finished match, seat by seat."""

    returns: tuple[float, ...]
    truncated: bool
    turns: int
    decisions: tuple[int, ...]
    tokens: tuple[int, ...]
    engine_ms: tuple[float, ...]
    fallbacks: tuple[int, ...]


def played_of(recorded: Sequence[Recorded], seats: int) -> Played | None:
    """Sum up a match from its events; None if it has not ended."""
    decisions, tokens, fallbacks = [0] * seats, [0] * seats, [0] * seats
    engine_ms = [0.0] * seats
    turns = asking = 0
    for each in recorded:
        match each.event:
            case DecisionRequested(seat=seat):
                asking = seat
                decisions[seat] += 1
            case DecisionAnswered() as answer:
                tokens[asking] += answer.tokens_read + answer.tokens_reused
                engine_ms[asking] += answer.engine_ms
            case TurnTaken() as turn:
                turns += 1
                fallbacks[turn.seat] += turn.how == "fallback"
            case ChanceDrawn():
                turns += 1
            case MatchEnded() as end:
                return Played(
                    returns=end.returns,
                    truncated=end.end == "truncated",
                    turns=turns,
                    decisions=tuple(decisions),
                    tokens=tuple(tokens),
                    engine_ms=tuple(engine_ms),
                    fallbacks=tuple(fallbacks),
                )
            case _:
                pass
    return None


class Line:
    """One agent's sums."""

    def __init__(self) -> None:
        self.matches = self.won = self.drawn = self.lost = 0
        self.returned = self.points = 0.0
        self.decisions = self.tokens = self.fallbacks = 0
        self.engine_ms = 0.0


class Standings:
    """The sums over counted matches, which come in the order of the schedule.

    Attributes:
        lines: By agent.
        meetings: Losses, draws and wins of the first of two agents against the second.
        pairs: Points of the first of two agents in two matches of one seed: 0, 1/2, 1, 3/2, 2.
        seats: How often a seat was won, drawn and lost, and the sum of its returns.
    """

    def __init__(self, agents: int, seats: int) -> None:
        self.matches = self.tokens = self.truncated = 0
        self.lines = [Line() for _ in range(agents)]
        self.meetings: dict[tuple[int, int], list[int]] = {}
        self.pairs: dict[tuple[int, int], list[int]] = {}
        self.seats = [[0, 0, 0, 0.0] for _ in range(seats)]
        self._half: int | None = None

    def add(self, fixture: Fixture, played: Played) -> None:
        """Count one match."""
        self.matches += 1
        self.truncated += played.truncated
        best = max(played.returns)
        level = best == min(played.returns) and len(played.returns) > 1
        for seat, agent in enumerate(fixture.players):
            line, own = self.lines[agent], played.returns[seat]
            won = not level and own == best
            line.matches += 1
            line.won += won
            line.drawn += level
            line.lost += not won and not level
            line.returned += own
            line.points += sum(
                (own > other) + 0.5 * (own == other)
                for at, other in enumerate(played.returns)
                if at != seat
            )
            line.decisions += played.decisions[seat]
            line.tokens += played.tokens[seat]
            line.fallbacks += played.fallbacks[seat]
            line.engine_ms += played.engine_ms[seat]
            column = 0 if won else 1 if level else 2
            self.seats[seat][column] += 1
            self.seats[seat][3] += own
        self.tokens += sum(played.tokens)
        self._meet(fixture.players, played.returns)

    def _meet(self, players: tuple[int, ...], returns: tuple[float, ...]) -> None:
        for seat, one in enumerate(players):
            for other_seat, two in enumerate(players):
                if one < two:
                    mine, theirs = returns[seat], returns[other_seat]
                    result = 1 + (mine > theirs) - (mine < theirs)
                    self.meetings.setdefault((one, two), [0, 0, 0])[result] += 1
                    if len(players) == 2:
                        self._pair((one, two), result)

    def _pair(self, who: tuple[int, int], result: int) -> None:
        """The schedule has the two matches of a pair one after the other."""
        if self._half is None:
            self._half = result
        else:
            self.pairs.setdefault(who, [0] * 5)[self._half + result] += 1
            self._half = None

    @property
    def whole_pairs(self) -> bool:
        """Whether no pair is half played."""
        return self._half is None
