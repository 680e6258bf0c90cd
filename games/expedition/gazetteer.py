"""Chapters of the rulebook with one entry for each row of a table."""

from __future__ import annotations

from games.expedition import rules as law
from games.expedition.phrases import effect, faces, listed, mean_energy, table
from games.expedition.schema import (
    GROUNDS,
    SHELTERS,
    Creature,
    Item,
    Rules,
    Season,
    Terrain,
    Weather,
)


def lands(rules: Rules) -> str:
    """Write the chapter of terrains."""
    grounds = "; ".join(
        f"{listed([t.name for t in rules.terrains if t.ground == ground])} "
        f"{'are' if sum(t.ground == ground for t in rules.terrains) > 1 else 'is'} {ground}"
        for ground in GROUNDS
    )
    shelters = "; ".join(
        f"{shelter}: {listed([t.name for t in rules.terrains if t.shelter == shelter])}"
        for shelter in SHELTERS
    )
    opening = f"""The lands

Every region is of one terrain. A terrain has a kind of ground, which decides what the weather \
adds to its cost, and a kind of shelter, which decides what its nights are like. Of the grounds, \
{grounds}. The shelters are these. {shelters[0].upper()}{shelters[1:]}.

Each entry gives first what travellers say and then what the rules say. The costs are those \
without equipment. Faces that an entry does not give to anything else bring the plain result."""
    return "\n\n".join((opening, *(_land(rules, terrain) for terrain in rules.terrains)))


def _land(rules: Rules, terrain: Terrain) -> str:
    measures = rules.measures
    hard = [weather.name for weather in rules.weathers if terrain.ground in weather.hard_on]
    eased = [item.name for item in rules.items if terrain.name in item.eases]
    haunts = [f"{haunt.creature} on {haunt.faces}" for haunt in terrain.haunts]
    nobody = measures.faces - sum(haunt.faces for haunt in terrain.haunts)
    march = faces(law.ground(measures, terrain, (), "march"))
    forage = faces(law.ground(measures, terrain, (), "forage"))
    shares = sum(other.share for other in rules.terrains)
    return f"""### {terrain.name.capitalize()}

{terrain.text}

Ground {terrain.ground}; shelter {terrain.shelter}. March into it: {terrain.cost} energy, more in \
{listed(hard, last="or")}. Eased by: {listed(eased)}. Rest: {terrain.rest} energy. Of \
{measures.faces} faces after a march: {march}. After foraging: {forage}. Creatures: \
{", ".join(haunts)}, nobody on the other {nobody}. Lots: {terrain.share} of {shares}."""


def weathers(rules: Rules) -> str:
    """Write the chapter of weathers."""
    opening = """Weather

The weather of a day does one thing: on the kinds of ground on which it is hard, every march into \
a region and every day of foraging in one costs an extra. It is the region entered that matters \
for a march, and the region foraged in for foraging. Rest is never affected, and neither are the \
ground, the creatures and the night, which have their own tables."""
    return "\n\n".join((opening, *(_weather(rules, weather) for weather in rules.weathers)))


def _weather(rules: Rules, weather: Weather) -> str:
    hard = [terrain.name for terrain in rules.terrains if terrain.ground in weather.hard_on]
    kinds = f"{listed(weather.hard_on)} ground, which is {listed(hard)}"
    price = (
        f"Extra cost {weather.extra} on {kinds}."
        if hard
        else f"Extra cost {weather.extra}, anywhere."
    )
    seasons = [
        f"{season.name} ({chance.faces} of {rules.measures.faces})"
        for season in rules.seasons
        for chance in season.weathers
        if chance.weather == weather.name
    ]
    shields = [item.name for item in rules.items if weather.name in item.shields]
    return f"""### {weather.name.capitalize()}

{weather.text}

{price} Seasons: {listed(seasons)}. Shielded by: {listed(shields)}."""


def seasons(rules: Rules) -> str:
    """Write the chapter of seasons and nights."""
    measures = rules.measures
    opening = f"""Seasons and nights

A journey lies within one season, which the page of its map names. The season decides three \
things: which kinds of weather there are and how likely each is, how the nights are in each kind \
of shelter, and how much a bitter night takes. A sound night gives {measures.sound} energy in \
every season, and a restless one neither gives nor takes. Energy from a sound night, like all \
energy, does not go beyond {measures.energy_full}.

The tables give faces of {measures.faces}, and in their last column the energy that such a night \
brings on average, without equipment, to somebody who can make use of all of it."""
    return "\n\n".join((opening, *(_season(rules, season) for season in rules.seasons)))


def _season(rules: Rules, season: Season) -> str:
    kinds = listed([f"{chance.weather} on {chance.faces}" for chance in season.weathers])
    rows = []
    for row in season.nights:
        nights = law.nights(rules.measures, season, (), row.shelter)
        rows.append((row.shelter, *(str(n.faces) for n in nights), f"{mean_energy(nights):+.2f}"))
    header = ("shelter", "restless", "sound", "bitter", "average")
    return f"""### {season.name.capitalize()}

{season.text}

Weather, of {rules.measures.faces} faces: {kinds}. A bitter night takes {season.bitter} energy.

{table(header, rows)}"""


def creatures(rules: Rules) -> str:
    """Write the chapter of creatures."""
    opening = """Creatures

Whom one meets depends on the terrain and on nothing else. A region is never cleared of its \
creatures, and meeting one on one day makes it neither likelier nor less likely on the next. At \
most one kind is met on a day. Some take energy, some take food, one takes ground; others give, \
and the traveller should no more avoid the haunts of those than the shore of a lake."""
    return "\n\n".join((opening, *(_creature(rules, creature) for creature in rules.creatures)))


def _creature(rules: Rules, creature: Creature) -> str:
    haunts = [
        f"{terrain.name} ({haunt.faces} of {rules.measures.faces})"
        for terrain in rules.terrains
        for haunt in terrain.haunts
        if haunt.creature == creature.name
    ]
    guards = [item.name for item in rules.items if creature.name in item.guards]
    return f"""### {creature.name.capitalize()}

{creature.text}

Effect: {effect(creature.effect)}. Haunts: {listed(haunts)}. Kept off by: {listed(guards)}."""


def equipment(rules: Rules) -> str:
    """Write the chapter of equipment."""
    opening = """Equipment

There are four things that equipment may do about the dangers of the country, and two that it may \
do about hunger. It may ease a terrain, which lowers the cost of marching into it. It may shield \
from a weather, whose extra is then not paid, on any ground. It may keep off a creature, which is \
then met without effect. It may warm, which lowers what a bitter night takes, though never below \
nothing. It may make a meal found while foraging larger, or a ration eaten at rest. Unless an \
entry says so, a piece of equipment does none of these."""
    return "\n\n".join((opening, *(_item(item) for item in rules.items)))


def _item(item: Item) -> str:
    return f"### {item.name.capitalize()}\n\n{item.text}\n\n{' '.join(_uses(item))}"


def _uses(item: Item) -> list[str]:
    uses = []
    if item.eases or item.ease:
        uses.append(f"Eases {listed(item.eases)} by {item.ease}.")
    if item.shields:
        uses.append(f"Shields from {listed(item.shields)}.")
    if item.guards:
        uses.append(f"Keeps off {listed(item.guards)}.")
    if item.warmth:
        uses.append(f"A bitter night takes {item.warmth} energy less.")
    if item.meal:
        uses.append(f"A meal gives {item.meal} energy more.")
    if item.ration:
        uses.append(f"A ration eaten gives {item.ration} energy more.")
    return uses
