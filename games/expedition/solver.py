"""The exact baseline: backward induction over the rules themselves.

Every turn of a journey leads to the next turn and never back, so the situations that can be reached
fall into layers, one for each turn, and one pass from the last layer to the first gives the value
of each: the mean over what chance may bring, the best over the steps. There is no model of the
rules here; `rules.followers` is made of what the game itself calls.
"""

from __future__ import annotations

from games.errors import NotYourTurn
from games.expedition import rules
from games.expedition.game import ExpeditionState
from games.expedition.rules import Situation
from games.expedition.world import World

Followers = tuple[tuple[int, Situation], ...]
"""What may come next, with the faces of chance."""


class Solver:
    """Best play on one map at a time.

    The first state of a map that is asked about costs about a second; the states that can follow
    from it are then looked up.
    """

    def __init__(self) -> None:
        self._world: World | None = None
        self._values: dict[Situation, float] = {}

    def value(self, state: ExpeditionState) -> float:
        """Give the return that best play expects from a state."""
        self._solve(state)
        return self._values[state.situation]

    def best_action(self, state: ExpeditionState) -> str:
        """Give the best step, the first of equals in the order of the options.

        Raises:
            NotYourTurn: No step is to be chosen in this state.
        """
        situation = state.situation
        if situation.phase != "step":
            raise NotYourTurn(
                f"no step is to be chosen (phase {situation.phase}); apply chance first"
            )
        self._solve(state)
        return max(
            rules.STEPS,
            key=lambda step: self._values[rules.advance(state.world, situation, step)],
        )

    def _solve(self, state: ExpeditionState) -> None:
        if state.world != self._world:
            self._world, self._values = state.world, {}
        if state.situation in self._values:
            return
        for layer in reversed(reachable(state.world, state.situation)):
            for situation, after in layer.items():
                self._values[situation] = self._backed_up(state.world, situation, after)

    def _backed_up(self, world: World, situation: Situation, after: Followers) -> float:
        if not after:
            return rules.share_of_points(world, situation)
        if situation.phase == "step":
            return max(self._values[each] for _, each in after)
        total = sum(faces * self._values[each] for faces, each in after)
        return total / sum(faces for faces, _ in after)


def reachable(world: World, situation: Situation) -> list[dict[Situation, Followers]]:
    """Give all situations that may follow, with what follows from each, one layer for each turn.

    The first layer is the given situation.
    """
    layers: list[dict[Situation, Followers]] = []
    layer = {situation: rules.followers(world, situation)}
    while layer:
        layers.append(layer)
        nexts = {each for after in layer.values() for _, each in after}
        layer = {each: rules.followers(world, each) for each in nexts}
    return layers
