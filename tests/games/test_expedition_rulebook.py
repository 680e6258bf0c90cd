from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from games.expedition import rules as law
from games.expedition.handbook import handbook
from games.expedition.rulebook import rulebook
from games.expedition.schema import GROUNDS, SHELTERS
from games.expedition.tables import RULES

FULL, SHORT = rulebook(RULES), handbook(RULES)


def variants(value: Any, where: str = "rules") -> Iterator[tuple[str, Any]]:
    """Every change of one value of the tables, with the place where it was made."""
    if isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            for place, changed in variants(getattr(value, name), f"{where}.{name}"):
                yield place, msgspec.structs.replace(value, **{name: changed})
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            if isinstance(item, str):
                yield f"{where}[{index}]", value[:index] + value[index + 1 :]
            else:
                for place, changed in variants(item, f"{where}[{index}]"):
                    yield place, (*value[:index], changed, *value[index + 1 :])
    elif isinstance(value, bool):
        yield where, not value
    elif isinstance(value, int):
        yield where, value + 1
    elif where.endswith(".text"):
        yield where, value + " Changed."


CHANGES = list(variants(RULES))


def test_every_value_of_the_tables_is_in_the_rulebook():
    assert len(CHANGES) > 400
    unsaid = [where for where, changed in CHANGES if rulebook(changed) == FULL]
    assert unsaid == []


def test_every_value_but_the_tales_is_in_the_short_rules():
    unsaid = [where for where, changed in CHANGES if handbook(changed) == SHORT]
    assert unsaid == [where for where, _ in CHANGES if where.endswith(".text")]


def test_lengths():
    assert 50_000 <= len(FULL) <= 60_000
    assert 2_000 <= len(SHORT) <= 6_000


def test_the_rulebook_does_not_repeat_itself():
    paragraphs = [text for text in FULL.split("\n\n") if len(text) > 120]
    assert len(paragraphs) > 130
    assert len(set(paragraphs)) == len(paragraphs)


def test_texts_are_plain():
    for text in (FULL, SHORT):
        assert text.isascii()
        assert text.endswith("\n")
        assert not re.search(r"  +\n|\n\n\n|\{|\}|None", text)


def test_chapters_that_are_referred_to_are_those_that_are_meant():
    chapters = dict(re.findall(r"^## (\d+)\. (.*)$", FULL, flags=re.MULTILINE))
    assert {number: chapters[number] for number in re.findall(r"hapter (\d+)", FULL)} == {
        "3": "The six steps",
        "7": "The lands",
        "9": "Seasons and nights",
        "11": "Equipment",
    }


def names(rows: tuple[Any, ...]) -> list[str]:
    return [row.name for row in rows]


def test_tables_refer_to_what_exists():
    terrains, weathers, creatures = map(names, (RULES.terrains, RULES.weathers, RULES.creatures))
    for rows in (terrains, weathers, creatures, names(RULES.seasons), names(RULES.items)):
        assert len(set(rows)) == len(rows)
    assert {h.creature for t in RULES.terrains for h in t.haunts} == set(creatures)
    assert {c.weather for s in RULES.seasons for c in s.weathers} == set(weathers)
    assert {name for item in RULES.items for name in item.eases} <= set(terrains)
    assert {name for item in RULES.items for name in item.shields} <= set(weathers)
    assert {name for item in RULES.items for name in item.guards} <= set(creatures)
    assert {terrain.ground for terrain in RULES.terrains} == set(GROUNDS)
    for season in RULES.seasons:
        assert tuple(row.shelter for row in season.nights) == SHELTERS


def test_every_roll_has_the_faces_of_the_die():
    measures = RULES.measures
    rolls = [law.ground(measures, t, (), deed) for t in RULES.terrains for deed in law.PLAIN]
    rolls += [law.creatures(RULES, terrain, ()) for terrain in RULES.terrains]
    rolls += [law.nights(measures, s, (), shelter) for s in RULES.seasons for shelter in SHELTERS]
    for roll in rolls:
        assert sum(happening.faces for happening in roll) == measures.faces
        assert all(happening.faces > 0 for happening in roll)
        assert len(set(names(roll))) == len(roll)
    for season in RULES.seasons:
        assert sum(chance.faces for chance in season.weathers) == measures.faces


def test_what_the_tales_say_is_so():
    def worth(effect: Any) -> int:
        return effect.energy + effect.rations - effect.west

    assert all(worth(terrain.trouble.effect) < 0 for terrain in RULES.terrains)
    assert all(worth(terrain.fortune.effect) > 0 for terrain in RULES.terrains)
    guarded = {name for item in RULES.items for name in item.guards}
    assert guarded == {row.name for row in RULES.creatures if worth(row.effect) < 0}
    worst = min(RULES.terrains, key=lambda terrain: terrain.trouble.effect.energy)
    assert worst.name == "snowfield"
    assert min(RULES.creatures, key=lambda row: row.effect.energy).name == "bear"
    assert max(RULES.seasons, key=lambda season: season.bitter).name == "winter"
    assert max(terrain.rest for terrain in RULES.terrains) == RULES.terrain("old forest").rest


@pytest.mark.parametrize(
    ("terrain", "weather", "kit", "cost"),
    [
        ("meadow", "clear sky", (), 1),
        ("ridge", "fog", (), 3),
        ("ridge", "fog", ("staff",), 2),
        ("ridge", "fog", ("staff", "lantern"), 1),
        ("snowfield", "blizzard", ("snowshoes",), 3),
        ("snowfield", "blizzard", ("snowshoes", "fur coat"), 1),
        ("river", "heat", ("waders", "gauze veil"), 1),
    ],
)
def test_prices_of_marches(terrain: str, weather: str, kit: tuple[str, ...], cost: int):
    items = tuple(RULES.item(name) for name in kit)
    land, sky = RULES.terrain(terrain), RULES.weather(weather)
    assert law.march_cost(RULES.measures, land, sky, items) == cost


@pytest.mark.parametrize(
    ("terrain", "kit", "before", "after"),
    [
        ("lakeshore", (), (3, 1), (8, 0)),
        ("lakeshore", (), (4, 1), (6, 1)),
        ("lakeshore", (), (7, 0), (8, 0)),
        ("lakeshore", ("cooking pot",), (2, 1), (8, 0)),
        ("snowfield", (), (1, 0), (1, 0)),
    ],
)
def test_rests(terrain: str, kit: tuple[str, ...], before: tuple[int, int], after: tuple[int, int]):
    items = tuple(RULES.item(name) for name in kit)
    assert law.rested(RULES.measures, RULES.terrain(terrain), items, *before) == after
