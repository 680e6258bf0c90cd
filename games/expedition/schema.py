"""The shape of the rules' tables.

Everything that a rule can depend on is a value here: `rules.py` computes with it and the rulebooks
print it, so the text that a seat reads cannot say anything else than what the code does.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Ground = Literal["open", "wooded", "wet", "stony", "high"]
Shelter = Literal["sheltered", "fair", "exposed"]

GROUNDS: tuple[Ground, ...] = ("open", "wooded", "wet", "stony", "high")
SHELTERS: tuple[Shelter, ...] = ("sheltered", "fair", "exposed")


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """What a happening does to the traveller; `west` also drives them a region back."""

    energy: int = 0
    rations: int = 0
    west: bool = False


class Happening(msgspec.Struct, frozen=True, kw_only=True):
    """Something that chance may bring, on `faces` of the die's faces."""

    name: str
    faces: int
    effect: Effect


class Haunt(msgspec.Struct, frozen=True, kw_only=True):
    """A creature that may be met in a terrain, on `faces` of the die's faces."""

    creature: str
    faces: int


class Terrain(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of land.

    Attributes:
        cost: Energy to march into it.
        rest: Energy that a day of rest in it gives.
        trouble, fortune: What the ground may bring after a march.
        meal, find: Faces on which foraging gives a meal, or a ration.
        share: Parts of all maps that are of this kind, relative to the other shares.
        text: What the rulebook says about it besides the values.
    """

    name: str
    ground: Ground
    shelter: Shelter
    cost: int
    rest: int
    trouble: Happening
    fortune: Happening
    meal: int
    find: int
    haunts: tuple[Haunt, ...]
    share: int
    text: str


class Weather(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of day: on the grounds of `hard_on`, marching and foraging cost `extra` more."""

    name: str
    hard_on: tuple[Ground, ...]
    extra: int
    text: str


class Chance(msgspec.Struct, frozen=True, kw_only=True):
    """One weather of a season, on `faces` of the die's faces."""

    weather: str
    faces: int


class Nights(msgspec.Struct, frozen=True, kw_only=True):
    """Faces of the die on which a night in such a shelter is sound, or bitter."""

    shelter: Shelter
    sound: int
    bitter: int


class Season(msgspec.Struct, frozen=True, kw_only=True):
    """The time of year of a whole journey; `bitter` is the energy that a bitter night takes."""

    name: str
    weathers: tuple[Chance, ...]
    nights: tuple[Nights, ...]
    bitter: int
    text: str


class Creature(msgspec.Struct, frozen=True, kw_only=True):
    """What may be met; `meeting` is told after "The traveller meets ..."."""

    name: str
    effect: Effect
    meeting: str
    text: str


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of equipment, carried for the whole journey.

    Attributes:
        eases, ease: Marching into these terrains costs `ease` less.
        shields: Weathers whose extra cost is not paid.
        guards: Creatures whose meeting has no effect.
        meal, ration: Energy that a meal, or a ration eaten, gives more.
        warmth: Energy that a bitter night takes less.
    """

    name: str
    eases: tuple[str, ...] = ()
    ease: int = 0
    shields: tuple[str, ...] = ()
    guards: tuple[str, ...] = ()
    meal: int = 0
    ration: int = 0
    warmth: int = 0
    text: str


class Measures(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers that hold everywhere.

    Attributes:
        faces: Faces of the die; every chance is a number of them.
        energy_full, energy_start, energy_low: Most energy; energy on the first day; energy is low
            at this or less.
        rations_most, rations_start: The same of rations.
        march_least: No march costs less before the weather's extra.
        forage: Energy that foraging costs before the weather's extra.
        meal, ration: Energy from a meal, and from a ration eaten.
        deep, deep_faces: Energy that deep sleep adds to a rest, and on how many faces.
        sound: Energy that a sound night gives.
        items: Pieces of equipment on a journey.
        distance, survival: Most points for the way made; points for ending it on one's feet.
    """

    faces: int
    energy_full: int
    energy_start: int
    energy_low: int
    rations_most: int
    rations_start: int
    march_least: int
    forage: int
    meal: int
    ration: int
    deep: int
    deep_faces: int
    sound: int
    items: int
    distance: int
    survival: int


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """All tables."""

    measures: Measures
    terrains: tuple[Terrain, ...]
    weathers: tuple[Weather, ...]
    seasons: tuple[Season, ...]
    creatures: tuple[Creature, ...]
    items: tuple[Item, ...]

    def weather(self, name: str) -> Weather:
        """Give the weather of that name."""
        return next(weather for weather in self.weathers if weather.name == name)

    def creature(self, name: str) -> Creature:
        """Give the creature of that name."""
        return next(creature for creature in self.creatures if creature.name == name)

    def terrain(self, name: str) -> Terrain:
        """Give the terrain of that name."""
        return next(terrain for terrain in self.terrains if terrain.name == name)

    def season(self, name: str) -> Season:
        """Give the season of that name."""
        return next(season for season in self.seasons if season.name == name)

    def item(self, name: str) -> Item:
        """Give the piece of equipment of that name."""
        return next(item for item in self.items if item.name == name)
