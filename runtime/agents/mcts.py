"""Searches by play at random, in copies of the game's state.

The tree belongs to the seat that searches: each simulation goes through it in a world that this
seat cannot tell from the real one, so that nothing hidden is looked at (P. Cowling, E. Powley and
D. Whitehouse, "Information set Monte Carlo tree search", IEEE Transactions on Computational
Intelligence and AI in Games 4(2), 2012). Where nothing is hidden this is UCT (L. Kocsis and C.
Szepesvari, "Bandit based Monte-Carlo planning", ECML 2006), chance drawn anew each time.
"""

from __future__ import annotations

import math
from random import Random
from typing import Annotated

import anyio.lowlevel
import msgspec

from games.base import CHANCE, Game, GameFacts, State
from runtime.agents.base import Act, Agent, Turn, require_worlds
from runtime.draws import pick, uniform
from runtime.settings import Seconds

_EXPLORE = math.sqrt(2)
_LONGEST = 1_000  # turns of a simulation, in games that need not end
_AT_ONCE = 16  # simulations before other matches have their turn


class MctsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What `mcts:NAME=VALUE,...` can say.

    Attributes:
        simulations: Of a turn.
        deadline: Seconds of a turn, so that a budget which is too large ends too.
    """

    simulations: Annotated[int, msgspec.Meta(ge=1)] = 200
    deadline: Seconds = 600.0


class MctsAgent(Agent):
    """`mcts`, `mcts:simulations=200`. Its choice follows from the match's seed and the turn."""

    def __init__(self, settings: MctsSettings) -> None:
        self._simulations = settings.simulations
        self.deadline_s = settings.deadline

    def check(self, game: Game) -> None:
        """Refuse games that hide what they cannot draw anew."""
        require_worlds(game)

    async def act(self, turn: Turn) -> Act:
        """Take the option that was tried most often; of equals the one that did better."""
        draw = turn.draw()
        random = Random(draw)
        root = _Node(turn.facts.max_seats)
        for number in range(self._simulations):
            if number % _AT_ONCE == 0:
                await anyio.lowlevel.checkpoint()
            _simulate(root, turn.world(number), turn.facts, random)
        best = max(
            (option.id for option in turn.options if option.id in root.after),
            key=lambda label: (root.after[label].visits, root.after[label].total[turn.seat]),
        )
        return Act(best, draw)


class _Node:
    """What was found behind a line of turns; `total` sums each seat's result from 0 to 1."""

    __slots__ = ("after", "total", "visits")

    def __init__(self, seats: int) -> None:
        self.visits = 0
        self.total = [0.0] * seats
        self.after: dict[str, _Node] = {}

    def worth(self, seat: int, visits: int) -> float:
        """Give the upper bound of what a seat gets here, `visits` being those of its parent."""
        return self.total[seat] / self.visits + _EXPLORE * math.sqrt(math.log(visits) / self.visits)


def _simulate(root: _Node, state: State, facts: GameFacts, random: Random) -> None:
    """Go down the tree, add one node, play on at random, and count what came of it."""
    node, path = root, [root]
    turns, added = 0, False
    while (actor := state.actor) is not None and turns < _LONGEST:
        turns += 1
        if actor == CHANCE:
            outcomes = state.outcomes()
            label = outcomes[pick([each.weight for each in outcomes], random.random())].id
        else:
            labels = [option.id for option in state.options()]
            new = [label for label in labels if label not in node.after]
            if added or new:
                among = labels if added else new
                label = among[uniform(random.random(), len(among))]
            else:
                label = _best(node, labels, actor)
        state = state.apply(label)
        if not added:
            added = actor != CHANCE and label not in node.after
            node = node.after.setdefault(label, _Node(facts.max_seats))
            path.append(node)
    results = _scaled(state.returns(), facts)
    for node in path:
        node.visits += 1
        for seat, result in enumerate(results):
            node.total[seat] += result


def _best(node: _Node, labels: list[str], seat: int) -> str:
    return max(labels, key=lambda label: node.after[label].worth(seat, node.visits))


def _scaled(returns: tuple[float, ...], facts: GameFacts) -> list[float]:
    span = facts.max_return - facts.min_return
    if not 0 < span < math.inf:
        return [1 / (1 + math.exp(-max(-50.0, min(50.0, value)))) for value in returns]
    return [(value - facts.min_return) / span for value in returns]
