"""The exact baseline: backward induction over the rules themselves.

Every turn of a journey leads to the next turn and never back, so the situations that can be reached
fall into layers, one for each turn, and one pass from the last layer to the first gives the value
of each: the mean over what chance may bring, the best over the steps. There is no model of the
rules here; `rules.actions`, `rules.happenings` and `rules.advance` are what the game itself calls.
"""

from __future__ import annotations

from games.errors import NotYourTurn
from games.expedition import rules
from games.expedition.game import ExpeditionState
from games.expedition.rules import Situation
from games.expedition.world import World


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
        return max(rules.STEPS, key=lambda step: self._after(state.world, situation, step))

    def _solve(self, state: ExpeditionState) -> None:
        if state.world != self._world:
            self._world, self._values = state.world, {}
        if state.situation in self._values:
            return
        for layer in reversed(reachable(state.world, state.situation)):
            for situation in layer:
                self._values[situation] = self._backed_up(state.world, situation)

    def _backed_up(self, world: World, situation: Situation) -> float:
        if situation.phase == "over":
            return rules.share_of_points(world, situation)
        if situation.phase == "step":
            return max(self._after(world, situation, step) for step in rules.STEPS)
        chances = rules.happenings(world, situation)
        total = sum(chance.faces * self._after(world, situation, chance.name) for chance in chances)
        return total / sum(chance.faces for chance in chances)

    def _after(self, world: World, situation: Situation, action: str) -> float:
        return self._values[rules.advance(world, situation, action)]


def reachable(world: World, situation: Situation) -> list[set[Situation]]:
    """Give all situations that may follow, the given one first, one set for each turn from it."""
    layers = []
    layer = {situation}
    while layer:
        layers.append(layer)
        layer = {
            rules.advance(world, before, action)
            for before in layer
            for action in rules.actions(world, before)
        }
    return layers
