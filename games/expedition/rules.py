"""The rules: what may happen in a situation, and what it leads to.

Pure functions on small values. The game, the solver, the option texts and the rulebook's examples
all call these and nothing else.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from games.expedition.schema import (
    Effect,
    Happening,
    Item,
    Measures,
    Rules,
    Season,
    Shelter,
    Terrain,
    Weather,
)
from games.expedition.world import World

Phase = Literal["weather", "step", "ground", "creature", "night", "over"]
"""The turns of a day in their order; `over` when the journey has ended."""

MARCHES = ("north", "east", "south", "west")
STEPS = (*MARCHES, "rest", "forage")

PLAIN = {"march": "clear going", "rest": "plain sleep", "forage": "nothing found"}
DEEP_SLEEP, MEAL, RATION = "deep sleep", "a meal", "a ration"
NOBODY = "nobody"
SOUND, RESTLESS, BITTER = "a sound night", "a restless night", "a bitter night"

_NO_EFFECT = Effect()


class Situation(msgspec.Struct, frozen=True, gc=False):
    """All that changes during a journey.

    Attributes:
        cell: Index into the world's `land`.
        weather: Today's, while the step is to be chosen; empty at other times.
        deed: What the step was, while the ground answers to it; empty at other times.
    """

    phase: Phase
    day: int
    cell: int
    energy: int
    rations: int
    weather: str = ""
    deed: str = ""


def start(world: World) -> Situation:
    """Give the situation before the first day's weather."""
    measures = world.rules.measures
    return Situation("weather", 1, world.start, measures.energy_start, measures.rations_start)


def energy_low(measures: Measures, energy: int) -> bool:
    """Say whether energy is low, as the rules define it."""
    return energy <= measures.energy_low


def extra_cost(terrain: Terrain, weather: Weather, kit: tuple[Item, ...]) -> int:
    """Give the energy that the weather adds to a march into, or foraging in, a terrain."""
    if terrain.ground not in weather.hard_on or any(weather.name in item.shields for item in kit):
        return 0
    return weather.extra


def march_cost(
    measures: Measures, terrain: Terrain, weather: Weather, kit: tuple[Item, ...]
) -> int:
    """Give the energy that a march into a terrain takes."""
    ease = sum(item.ease for item in kit if terrain.name in item.eases)
    base = max(measures.march_least, terrain.cost - ease)
    return base + extra_cost(terrain, weather, kit)


def forage_cost(
    measures: Measures, terrain: Terrain, weather: Weather, kit: tuple[Item, ...]
) -> int:
    """Give the energy that a day of foraging takes."""
    return measures.forage + extra_cost(terrain, weather, kit)


def ration_gain(measures: Measures, kit: tuple[Item, ...]) -> int:
    """Give the energy of a ration eaten."""
    return measures.ration + sum(item.ration for item in kit)


def rested(
    measures: Measures, terrain: Terrain, kit: tuple[Item, ...], energy: int, rations: int
) -> tuple[int, int]:
    """Give energy and rations after a rest; a ration is eaten where none of it is wasted."""
    energy = min(measures.energy_full, energy + terrain.rest)
    gain = ration_gain(measures, kit)
    if rations and energy + gain <= measures.energy_full:
        return energy + gain, rations - 1
    return energy, rations


def ground(
    measures: Measures, terrain: Terrain, kit: tuple[Item, ...], deed: str
) -> tuple[Happening, ...]:
    """Give what the ground may bring after a march, a rest or foraging."""
    if deed == "march":
        some = (terrain.trouble, terrain.fortune)
    elif deed == "rest":
        some = (_happening(DEEP_SLEEP, measures.deep_faces, measures.deep),)
    else:
        meal = measures.meal + sum(item.meal for item in kit)
        some = (
            _happening(MEAL, terrain.meal, meal),
            Happening(name=RATION, faces=terrain.find, effect=Effect(rations=1)),
        )
    return _or_else(measures, PLAIN[deed], some)


def guard(kit: tuple[Item, ...], creature: str) -> Item | None:
    """Give the equipment that keeps a creature off."""
    return next((item for item in kit if creature in item.guards), None)


def creatures(rules: Rules, terrain: Terrain, kit: tuple[Item, ...]) -> tuple[Happening, ...]:
    """Give whom the traveller may meet in a terrain; what is kept off has no effect."""
    met = tuple(
        Happening(
            name=haunt.creature,
            faces=haunt.faces,
            effect=rules.creature(haunt.creature).effect
            if guard(kit, haunt.creature) is None
            else _NO_EFFECT,
        )
        for haunt in terrain.haunts
    )
    return _or_else(rules.measures, NOBODY, met)


def nights(
    measures: Measures, season: Season, kit: tuple[Item, ...], shelter: Shelter
) -> tuple[Happening, ...]:
    """Give how a night in such a shelter may be."""
    row = next(row for row in season.nights if row.shelter == shelter)
    loss = max(0, season.bitter - sum(item.warmth for item in kit))
    return (
        _happening(RESTLESS, measures.faces - row.sound - row.bitter, 0),
        _happening(SOUND, row.sound, measures.sound),
        _happening(BITTER, row.bitter, -loss),
    )


def happenings(world: World, situation: Situation) -> tuple[Happening, ...]:
    """Give what chance may bring, in a fixed order; empty where a step is to be chosen."""
    terrain = world.land[situation.cell]
    match situation.phase:
        case "weather":
            return tuple(_happening(c.weather, c.faces, 0) for c in world.season.weathers)
        case "ground":
            return ground(world.rules.measures, terrain, world.kit, situation.deed)
        case "creature":
            return creatures(world.rules, terrain, world.kit)
        case "night":
            return nights(world.rules.measures, world.season, world.kit, terrain.shelter)
        case _:
            return ()


def actions(world: World, situation: Situation) -> tuple[str, ...]:
    """Give the names of all that may come next: steps, or what chance may bring."""
    if situation.phase == "step":
        return STEPS
    return tuple(happening.name for happening in happenings(world, situation))


def advance(world: World, situation: Situation, action: str) -> Situation:
    """Give the situation after one of `actions`."""
    if situation.phase == "step":
        return _step(world, situation, action)
    if situation.phase == "weather":
        return _with(situation, "step", weather=action)
    effect = next(h.effect for h in happenings(world, situation) if h.name == action)
    return _after(world, _suffer(world, situation, effect))


def followers(world: World, situation: Situation) -> tuple[tuple[int, Situation], ...]:
    """Give what `advance` gives for each of `actions`, in their order, with the faces of chance.

    A step has no faces: 0.
    """
    if situation.phase == "step":
        return tuple((0, _step(world, situation, step)) for step in STEPS)
    chances = happenings(world, situation)
    if situation.phase == "weather":
        return tuple((c.faces, _with(situation, "step", weather=c.name)) for c in chances)
    return tuple((c.faces, _after(world, _suffer(world, situation, c.effect))) for c in chances)


def points(world: World, situation: Situation) -> float:
    """Give the points of a journey that ended here."""
    measures = world.rules.measures
    distance = measures.distance * world.column(situation.cell) / world.last_column
    return distance + (measures.survival if situation.energy else 0)


def share_of_points(world: World, situation: Situation) -> float:
    """Give the points as a part of the most that there are, from 0 to 1."""
    measures = world.rules.measures
    return points(world, situation) / (measures.distance + measures.survival)


def _step(world: World, situation: Situation, step: str) -> Situation:
    measures, kit = world.rules.measures, world.kit
    weather = world.rules.weather(situation.weather)
    cell, energy, rations = situation.cell, situation.energy, situation.rations
    deed = step
    if step == "rest":
        energy, rations = rested(measures, world.land[cell], kit, energy, rations)
    elif step == "forage":
        energy -= forage_cost(measures, world.land[cell], weather, kit)
    else:
        cell, deed = world.neighbour(cell, step), "march"
        energy -= march_cost(measures, world.land[cell], weather, kit)
    energy = max(0, energy)
    if energy == 0 or world.column(cell) == world.last_column:
        return Situation("over", situation.day, cell, energy, rations)
    return Situation("ground", situation.day, cell, energy, rations, deed=deed)


def _suffer(world: World, situation: Situation, effect: Effect) -> Situation:
    measures = world.rules.measures
    return Situation(
        situation.phase,
        situation.day,
        world.neighbour(situation.cell, "west") if effect.west else situation.cell,
        min(measures.energy_full, max(0, situation.energy + effect.energy)),
        min(measures.rations_most, max(0, situation.rations + effect.rations)),
    )


def _after(world: World, situation: Situation) -> Situation:
    if situation.energy == 0:
        return _with(situation, "over")
    if situation.phase == "ground":
        return _with(situation, "creature")
    if situation.phase == "creature":
        return _with(situation, "night")
    if situation.day == world.days:
        return _with(situation, "over")
    return _with(situation, "weather", day=situation.day + 1)


def _with(
    situation: Situation, phase: Phase, *, day: int | None = None, weather: str = ""
) -> Situation:
    return Situation(
        phase,
        situation.day if day is None else day,
        situation.cell,
        situation.energy,
        situation.rations,
        weather,
    )


def _happening(name: str, faces: int, energy: int) -> Happening:
    return Happening(name=name, faces=faces, effect=Effect(energy=energy))


def _or_else(measures: Measures, name: str, some: tuple[Happening, ...]) -> tuple[Happening, ...]:
    rest = measures.faces - sum(happening.faces for happening in some)
    return (_happening(name, rest, 0), *some)
