from __future__ import annotations

import pytest

from games.expedition import rules
from games.expedition.rules import Situation, advance
from games.expedition.tables import RULES
from games.expedition.world import Size, World


def world(*land: str, kit: tuple[str, ...] = (), season: str = "spring", days: int = 5) -> World:
    """A map of one row."""
    return World(
        RULES,
        Size(len(land), 1, days),
        RULES.season(season),
        tuple(RULES.item(name) for name in kit),
        tuple(RULES.terrain(name) for name in land),
    )


def at(cell: int, phase: rules.Phase, energy: int, rations: int = 0, **more: str) -> Situation:
    return Situation(phase, 2, cell, energy, rations, **more)


WAY = world("meadow", "river", "moor", "meadow")


@pytest.mark.parametrize(
    ("step", "energy", "rations", "after"),
    [
        ("east", 7, 0, Situation("ground", 2, 2, 5, 0, deed="march")),
        ("west", 7, 0, Situation("ground", 2, 0, 6, 0, deed="march")),
        ("north", 7, 0, Situation("ground", 2, 1, 4, 0, deed="march")),
        ("south", 3, 0, Situation("over", 2, 1, 0, 0)),
        ("rest", 4, 1, Situation("ground", 2, 1, 8, 0, deed="rest")),
        ("rest", 5, 1, Situation("ground", 2, 1, 6, 1, deed="rest")),
        ("forage", 5, 1, Situation("ground", 2, 1, 3, 1, deed="forage")),
        ("forage", 2, 1, Situation("over", 2, 1, 0, 1)),
    ],
)
def test_steps_on_a_foggy_river(step: str, energy: int, rations: int, after: Situation):
    assert advance(WAY, at(1, "step", energy, rations, weather="fog"), step) == after


def test_arrival_ends_the_journey_and_needs_energy_to_be_survived():
    for energy, points in ((2, 100.0), (1, 60.0)):
        after = advance(WAY, at(2, "step", energy, weather="clear sky"), "east")
        assert after.phase == "over"
        assert rules.points(WAY, after) == points


@pytest.mark.parametrize(
    ("land", "cell", "action", "before", "after"),
    [
        ("meadow", 1, "aurochs", (5, 1), (0, 5, 1)),
        ("meadow", 0, "aurochs", (5, 1), (0, 5, 1)),
        ("meadow", 1, "bees", (8, 1), (1, 8, 1)),
        ("river", 1, "otter", (5, 0), (1, 5, 1)),
        ("river", 1, "otter", (5, 1), (1, 5, 1)),
        ("ruins", 1, "raven", (5, 1), (1, 5, 0)),
        ("ruins", 1, "raven", (5, 0), (1, 5, 0)),
        ("old forest", 1, "bear", (5, 0), (1, 2, 0)),
        ("ruins", 1, "nobody", (5, 0), (1, 5, 0)),
    ],
)
def test_creatures(
    land: str, cell: int, action: str, before: tuple[int, int], after: tuple[int, int, int]
):
    met = advance(world(land, land, land), at(cell, "creature", *before), action)
    assert met == Situation("night", 2, *after)


def test_what_is_kept_off_is_met_without_effect():
    safe = world("old forest", "old forest", kit=("bell",))
    assert advance(safe, at(0, "creature", 2), "bear") == at(0, "night", 2)
    assert advance(world("old forest", "old forest"), at(0, "creature", 2), "bear").phase == "over"


def test_equipment_enlarges_meals_and_softens_nights():
    plain = world("moor", "moor", season="winter")
    equipped = world("moor", "moor", season="winter", kit=("snare", "tent"))
    for way, meal, night in ((plain, 5, 3), (equipped, 6, 4)):
        assert advance(way, at(0, "ground", 1, deed="forage"), rules.MEAL).energy == meal
        assert advance(way, at(0, "night", 5), rules.BITTER).energy == night


def test_days_follow_one_another_until_the_last():
    nights = world("moor", "moor", days=3)
    morning = advance(nights, Situation("night", 2, 0, 5, 0), rules.SOUND)
    assert morning == Situation("weather", 3, 0, 6, 0)
    end = advance(nights, Situation("night", 3, 0, 5, 0), rules.RESTLESS)
    assert end == Situation("over", 3, 0, 5, 0)
    assert rules.actions(nights, end) == ()
    assert rules.share_of_points(nights, end) == 0.4
