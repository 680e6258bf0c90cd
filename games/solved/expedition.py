"""Expedition, solved by backward induction over its own rules."""

from __future__ import annotations

import hashlib
from typing import Final

from games.expedition import rules
from games.expedition.game import ExpeditionState
from games.expedition.solver import Solver
from games.expedition.world import World
from games.questions import Option
from games.solved.judged import (
    Judged,
    Position,
    is_test,
    judged_choice,
    judged_noul,
    judged_score,
    softly,
)

GAME = "expedition"
TEMPERATURE: Final = 0.01
"""Shares of all points: steps that cost a tenth of it are as good as the best."""

_HOPES = (
    "less than half of all points",
    "half to three quarters of all points",
    "three quarters to nine tenths of all points",
    "more than nine tenths of all points",
)


def key(world: World) -> str:
    """Name the map: all positions on it are learned from, or none."""
    told = (
        f"{world.size.columns}x{world.size.rows} {world.days} {world.season.name} "
        f"{[item.name for item in world.kit]} {[terrain.name for terrain in world.land]}"
    )
    return f"{GAME} {hashlib.sha256(told.encode()).hexdigest()[:16]}"


def values(solver: Solver, state: ExpeditionState) -> tuple[float, ...]:
    """Give what best play gets after each of the six steps."""
    return tuple(solver.value(state.apply(step)) for step in rules.STEPS)


def position(state: ExpeditionState, solver: Solver) -> Position:
    """Judge a state in which a step is to be chosen; the solver is quick on one map at a time."""
    name = key(state.world)
    return Position(
        game=GAME,
        key=name,
        test=is_test(name),
        view=state.view(0),
        judged=_judged(state, solver),
    )


def _judged(state: ExpeditionState, solver: Solver) -> tuple[Judged, ...]:
    step, low = state.questions()
    world, situation = state.world, state.situation
    steps = values(solver, state)
    best = max(steps)
    hope = sum(best >= bound for bound in (0.5, 0.75, 0.9))
    here = world.land[situation.cell].name
    places = tuple(Option(name) for name in sorted({here, *(t.name for t in world.land[:4])}))
    left = world.last_column - world.column(situation.cell)
    return (
        Judged(question=step, target=softly(steps, TEMPERATURE), values=steps),
        Judged(question=low, target=(float(state.energy_low), float(not state.energy_low))),
        judged_noul("rations", "Does the traveller still have a ration?", situation.rations > 0),
        judged_noul("half_way", "Is at least half of the way made?", 2 * left <= world.last_column),
        judged_score("hope", "How many points does best play expect here?", _HOPES, hope),
        judged_score(
            "energy",
            "How much energy does the traveller have?",
            tuple(f"energy {n}" for n in range(world.rules.measures.energy_full + 1)),
            situation.energy,
        ),
        judged_choice("land", "In which terrain is the traveller?", places, (here,)),
    )
