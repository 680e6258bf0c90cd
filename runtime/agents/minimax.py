"""Searches all lines of play to a depth that grows until its budget is spent."""

from __future__ import annotations

import math
from typing import Annotated

import anyio.lowlevel
import msgspec

from games.base import Game, State
from runtime.agents.base import Act, Agent, Turn
from runtime.draws import uniform
from runtime.errors import CannotPlay
from runtime.settings import Seconds

_AT_ONCE = 256  # positions before other matches have their turn
_DEEPEST = 200  # turns ahead; each is a call inside a call
_HAIR = 1e-9


class MinimaxSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What `minimax:NAME=VALUE,...` can say.

    Attributes:
        nodes: Positions of a turn, those of every depth counted.
        deadline: Seconds of a turn, so that a budget which is too large ends too.
    """

    nodes: Annotated[int, msgspec.Meta(ge=1)] = 20_000
    deadline: Seconds = 600.0


class MinimaxAgent(Agent):
    """`minimax`, `minimax:nodes=20000`: alpha-beta for two seats, without chance, open to both.

    Depth by depth; the last one that the budget covers whole counts. Where that is short of the
    end, a position is worth what its returns are so far. Among equals the turn's draw chooses.
    """

    def __init__(self, settings: MinimaxSettings) -> None:
        self._nodes = settings.nodes
        self.deadline_s = settings.deadline

    def check(self, game: Game) -> None:
        """Refuse games of more seats, with chance, or in which something is hidden."""
        facts = game.facts
        if facts.hidden or facts.chance or not facts.zero_sum or facts.max_seats != 2:
            raise CannotPlay(
                f"minimax needs two seats, returns that sum to zero, no chance and nothing hidden,"
                f" and {facts.id} is another game; take mcts"
            )

    async def act(self, turn: Turn) -> Act:
        """Take one of the best options."""
        draw = turn.draw()
        labels = [option.id for option in turn.options]
        best, search = labels, _Search(turn.seat, self._nodes)
        for depth in range(_DEEPEST):
            search.cut = False
            worths = await search.worths(turn.world(), labels, depth)
            if worths is None:
                break
            most = max(worths)
            best = [label for label, worth in zip(labels, worths, strict=True) if worth == most]
            if not search.cut:
                break
        return Act(best[uniform(draw, len(best))], draw)


class _Spent(Exception):
    """The budget is."""


class _Search:
    """The positions of one turn.

    Attributes:
        cut: Whether a line of play was given up before its end.
    """

    def __init__(self, seat: int, nodes: int) -> None:
        self.cut = False
        self._seat = seat
        self._left = nodes

    async def worths(self, state: State, labels: list[str], depth: int) -> list[float] | None:
        """Give what each option comes to; one below the best may be too high, None is no budget."""
        worths: list[float] = []
        try:
            for label in labels:
                # just below the best so far, so that its equals are known as such
                bound = max(worths, default=-math.inf) - _HAIR
                worths.append(await self._worth(state.apply(label), depth, bound, math.inf))
        except _Spent:
            return None
        return worths

    async def _worth(self, state: State, depth: int, low: float, high: float) -> float:
        self._left -= 1
        if self._left < 0:
            raise _Spent
        if self._left % _AT_ONCE == 0:
            await anyio.lowlevel.checkpoint()
        actor = state.actor
        if actor is None or depth == 0:
            self.cut |= actor is not None
            return state.returns()[self._seat]
        own = actor == self._seat
        worth = -math.inf if own else math.inf
        for option in state.options():
            found = await self._worth(state.apply(option.id), depth - 1, low, high)
            if own:
                worth = max(worth, found)
                low = max(low, worth)
            else:
                worth = min(worth, found)
                high = min(high, worth)
            if low >= high:
                break
        return worth
