"""What is told of a journey: its map, its journal, the present, the options."""

from __future__ import annotations

from games.expedition import rules
from games.expedition.phrases import listed, signed
from games.expedition.rules import Situation
from games.expedition.schema import Happening
from games.expedition.world import World
from games.layouts import Layout
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


def turn(layout: Layout, world: World, before: Situation, action: str, after: Situation) -> str:
    """Tell one turn as a line of the journal."""
    if before.phase == "step":
        kind, more = _deed(before, action, after), {}
    elif before.phase == "creature":
        kind, more = _meeting(world, action)
    else:
        kind, more = before.phase, {}
    return layout.turn(
        kind,
        day=before.day,
        action=action,
        where=_place(world, before.cell),
        place=_place(world, after.cell),
        before=before.energy,
        after=after.energy,
        changes=_changes(layout, world, before, after),
        ending=_ending(layout, world, after),
        **more,
    )


def summary(layout: Layout, world: World, situation: Situation) -> str:
    """Stand in for all earlier lines of the journal."""
    if situation.phase == "over":
        return layout.turn("summary over", ending=_ending(layout, world, situation))
    weather, deed = situation.weather, situation.deed
    return layout.turn(
        "summary",
        day=situation.day,
        weather=layout.turn("summary weather", weather=weather) if weather else "",
        deed=layout.turn("summary step", deed=deed) if deed else "",
        place=_place(world, situation.cell),
        energy=situation.energy,
        rations=situation.rations,
        coming=_TURNS[situation.phase],
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


def step_options(layout: Layout, world: World, situation: Situation) -> tuple[Option, ...]:
    """Give the six steps with what can be computed about each, where the layout tells it."""
    if not layout.options:
        return tuple(map(Option, rules.STEPS))
    return tuple(Option(step, _prospect(layout, world, situation, step)) for step in rules.STEPS)


def _prospect(layout: Layout, world: World, before: Situation, step: str) -> str | None:
    after = rules.advance(world, before, step)
    if after.phase == "over":
        then = _ending(layout, world, after)
    else:
        terrain = world.land[after.cell]
        then = layout.describe(
            ["chances"],
            faces=world.rules.measures.faces,
            ground=_chances(rules.happenings(world, after)),
            met=_chances(rules.creatures(world.rules, terrain, world.kit)),
            shelter=terrain.shelter,
        )
    return layout.describe(
        [_deed(before, step, after)],
        place=_place(world, after.cell),
        before=before.energy,
        after=after.energy,
        then=then or "",
    )


def _chances(happenings: tuple[Happening, ...]) -> str:
    return ", ".join(
        f"{some.name} {some.faces} ({signed(some.effect)})"
        for some in happenings
        if some.name not in _PLAIN
    )


def _deed(before: Situation, step: str, after: Situation) -> str:
    """Say what kind of step it was."""
    if step in rules.MARCHES:
        return "edge" if after.cell == before.cell else "march"
    return "rest fed" if after.rations < before.rations else step


def _meeting(world: World, name: str) -> tuple[str, dict[str, str]]:
    if name == rules.NOBODY:
        return "nobody", {}
    guard = rules.guard(world.kit, name)
    if guard is not None:
        return "kept off", {"guard": guard.name}
    return "creature", {"meeting": world.rules.creature(name).meeting}


def _changes(layout: Layout, world: World, before: Situation, after: Situation) -> str:
    told = ""
    if after.energy != before.energy:
        told += layout.turn("energy", before=before.energy, after=after.energy)
    if after.rations != before.rations:
        told += layout.turn("rations", before=before.rations, after=after.rations)
    if after.cell != before.cell:
        told += layout.turn("west", place=_place(world, after.cell))
    return told


def _ending(layout: Layout, world: World, situation: Situation) -> str:
    if situation.phase != "over":
        return ""
    if situation.energy == 0:
        kind = "collapsed"
    elif world.column(situation.cell) == world.last_column:
        kind = "arrived"
    else:
        kind = "out of days"
    place, points = _place(world, situation.cell), rules.points(world, situation)
    return layout.turn(kind, place=place, points=points)


def _place(world: World, cell: int) -> str:
    return f"{world.name(cell)} ({world.land[cell].name})"
