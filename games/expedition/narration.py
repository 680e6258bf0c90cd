"""What is told of a journey: its map, its journal, the present, the options."""

from __future__ import annotations

from games.expedition import rules
from games.expedition.phrases import listed, signed
from games.expedition.rules import Situation
from games.expedition.schema import Happening
from games.expedition.world import World
from games.questions import Option

_TURNS = {
    "weather": "the weather",
    "step": "the traveller's step",
    "ground": "the ground",
    "creature": "the creature",
    "night": "the night",
}
_PLAIN = (*rules.PLAIN.values(), rules.NOBODY)


def map_page(world: World) -> str:
    """Describe all that stays the same during this journey."""
    columns, rows = world.size.columns, world.size.rows
    lines = [
        "# This journey",
        "",
        f"Season: {world.season.name}. Equipment: {listed([item.name for item in world.kit])}. "
        f"Days: {world.days}. Start: {world.name(world.start)}. Far side: column "
        f"{world.name(world.last_column)[0]}.",
        "",
        *(
            f"Row {row + 1}: "
            + ", ".join(_place(world, cell) for cell in range(row * columns, (row + 1) * columns))
            for row in range(rows)
        ),
        "",
        "## Journal",
        "",
        "",
    ]
    return "\n".join(lines)


def turn(world: World, before: Situation, action: str, after: Situation) -> str:
    """Tell one turn as a line of the journal."""
    if before.phase == "weather":
        told = f"Weather: {action}."
    elif before.phase == "step":
        told = _step(world, before, action, after)
    elif before.phase == "creature":
        told = f"Creature: {_meeting(world, action)}.{_changes(world, before, after)}"
    else:
        told = f"{before.phase.capitalize()}: {action}.{_changes(world, before, after)}"
    return f"Day {before.day}. {told}{_ending(world, after)}\n"


def summary(world: World, situation: Situation) -> str:
    """Stand in for all earlier lines of the journal."""
    if situation.phase == "over":
        return f"Earlier entries are left out.{_ending(world, situation)}\n"
    weather = f" Weather: {situation.weather}." if situation.weather else ""
    deed = f" Today's step: {situation.deed}." if situation.deed else ""
    return (
        f"Earlier entries are left out. It is day {situation.day}.{weather}{deed} The traveller is "
        f"in {_place(world, situation.cell)} with energy {situation.energy} and "
        f"rations {situation.rations}. Next comes {_TURNS[situation.phase]}.\n"
    )


def present(world: World, situation: Situation) -> str:
    """Give the facts of the moment."""
    measures = world.rules.measures
    column = world.column(situation.cell)
    weather = f"Weather: {situation.weather}. " if situation.weather else ""
    coming = (
        "The journey is over."
        if situation.phase == "over"
        else f"Next comes {_TURNS[situation.phase]}."
    )
    return (
        f"\n## Now\n\nDay {situation.day} of {world.days}. {weather}Region: "
        f"{_place(world, situation.cell)}. Columns to the far side: {world.last_column - column}. "
        f"Energy: {situation.energy} of {measures.energy_full}. "
        f"Rations: {situation.rations} of {measures.rations_most}. {coming}\n"
    )


def step_options(world: World, situation: Situation) -> tuple[Option, ...]:
    """Give the six steps with what can be computed about each."""
    return tuple(Option(step, _prospect(world, situation, step)) for step in rules.STEPS)


def _prospect(world: World, before: Situation, step: str) -> str:
    after = rules.advance(world, before, step)
    told = f"energy {before.energy} to {after.energy}"
    if step in rules.MARCHES:
        way = "Edge of the map, back into" if after.cell == before.cell else "Into"
        told = f"{way} {_place(world, after.cell)}: {told}"
    else:
        told = told.capitalize() + (", ration eaten" if after.rations < before.rations else "")
    if after.phase == "over":
        return f"{told}.{_ending(world, after)}"
    terrain = world.land[after.cell]
    ground = _chances(rules.happenings(world, after))
    met = _chances(rules.creatures(world.rules, terrain, world.kit))
    faces = world.rules.measures.faces
    return f"{told}. Of {faces}: {ground}; then {met}; {terrain.shelter} night."


def _chances(happenings: tuple[Happening, ...]) -> str:
    return ", ".join(
        f"{some.name} {some.faces} ({signed(some.effect)})"
        for some in happenings
        if some.name not in _PLAIN
    )


def _step(world: World, before: Situation, step: str, after: Situation) -> str:
    where = _place(world, before.cell)
    if step == "rest":
        eaten = " and eats a ration" if after.rations < before.rations else ""
        told = f"rests in {where}{eaten}"
    elif step == "forage":
        told = f"forages in {where}"
    elif after.cell == before.cell:
        told = f"marches {step} to the edge of the map and back into {where}"
    else:
        told = f"marches {step} from {where} into {_place(world, after.cell)}"
    return f"Step: the traveller {told}. Energy {before.energy} to {after.energy}."


def _meeting(world: World, name: str) -> str:
    if name == rules.NOBODY:
        return name
    guard = rules.guard(world.kit, name)
    if guard is not None:
        return f"{name}, kept off by the {guard.name}"
    return f"the traveller meets {world.rules.creature(name).meeting}"


def _changes(world: World, before: Situation, after: Situation) -> str:
    told = ""
    if after.energy != before.energy:
        told += f" Energy {before.energy} to {after.energy}."
    if after.rations != before.rations:
        told += f" Rations {before.rations} to {after.rations}."
    if after.cell != before.cell:
        told += f" Back west into {_place(world, after.cell)}."
    return told


def _ending(world: World, situation: Situation) -> str:
    if situation.phase != "over":
        return ""
    place = _place(world, situation.cell)
    if situation.energy == 0:
        how = f"The traveller collapses in {place}"
    elif world.column(situation.cell) == world.last_column:
        how = f"The traveller has reached the far side in {place}"
    else:
        how = f"The days are over, and the traveller stands in {place}"
    return f" {how}: {rules.points(world, situation):.1f} points."


def _place(world: World, cell: int) -> str:
    return f"{world.name(cell)} ({world.land[cell].name})"
