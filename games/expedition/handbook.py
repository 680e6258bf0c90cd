"""The same rules on a few pages, for models with small windows."""

from __future__ import annotations

from games.expedition import rules as law
from games.expedition.phrases import signed
from games.expedition.schema import GROUNDS, Creature, Item, Rules, Season, Terrain, Weather


def handbook(rules: Rules) -> str:
    """Give the short text; it holds every value of the tables, and no tales."""
    measures = rules.measures
    most = measures.distance + measures.survival
    grounds = "; ".join(
        f"{ground}: {', '.join(t.name for t in rules.terrains if t.ground == ground)}"
        for ground in GROUNDS
    )
    return f"""# Expedition: the rules in short

Cross the map from west to east. The journey ends on arrival in the last column, at once when \
energy falls to 0 (collapse), or after the night of the last day. Points: {measures.distance} x \
columns made / columns from the start to the far side, and {measures.survival} for ending with \
energy above 0; the result is points / {most}.

A day has five turns: weather (by season; days are independent), step (yours), ground, creature, \
night (by season and shelter, in the region where you are by then). Chances are faces of a die \
that has {measures.faces}; faces not named have no effect. Energy is 0 to {measures.energy_full}, \
at first {measures.energy_start}; more is lost. Energy is low at {measures.energy_low} or less. \
Rations: 0 to {measures.rations_most}, at first {measures.rations_start}; more are lost. \
Equipment: {measures.items} pieces, kept for the whole journey.

Steps:
- north, east, south, west: costs the larger of {measures.march_least} and (cost of the terrain \
entered - ease), + the weather's extra if it is hard on that ground and not shielded. At the edge \
of the map you march back into your own region. Then the ground may bring the terrain's trouble or \
fortune.
- rest: gives the terrain's rest; then a ration is eaten (+{measures.ration}) if all of it fits. \
Then the ground may bring deep sleep on {measures.deep_faces} (+{measures.deep}).
- forage: costs {measures.forage} + the weather's extra, as for a march. Then the ground may bring \
a meal (+{measures.meal}) or a ration.

Maps: each region is drawn by lots, season and equipment evenly.

Ground: {grounds}.

Terrains (cost, rest, shelter, lots; trouble; fortune; forage; creatures):
{_lines([_terrain(terrain) for terrain in rules.terrains])}

Weathers (extra on grounds):
{_lines([_weather(weather) for weather in rules.weathers])}

Seasons (weathers; nights sound/bitter by shelter; a sound night gives {measures.sound}):
{_lines([_season(season) for season in rules.seasons])}

Creatures (no effect when kept off):
{_lines([_creature(creature) for creature in rules.creatures])}

Equipment:
{_lines([_item(item) for item in rules.items])}
"""


def _lines(entries: list[str]) -> str:
    return "\n".join(f"- {entry}" for entry in entries)


def _terrain(terrain: Terrain) -> str:
    some = "; ".join(
        f"{happening.name} {happening.faces} ({signed(happening.effect)})"
        for happening in (terrain.trouble, terrain.fortune)
    )
    haunts = ", ".join(f"{haunt.creature} {haunt.faces}" for haunt in terrain.haunts)
    return (
        f"{terrain.name}: {terrain.cost}, {terrain.rest}, {terrain.shelter}, {terrain.share}; "
        f"{some}; {law.MEAL} {terrain.meal}, {law.RATION} {terrain.find}; {haunts}"
    )


def _weather(weather: Weather) -> str:
    return f"{weather.name}: {weather.extra} on {', '.join(weather.hard_on) or 'none'}"


def _season(season: Season) -> str:
    kinds = ", ".join(f"{chance.weather} {chance.faces}" for chance in season.weathers)
    nights = ", ".join(f"{row.shelter} {row.sound}/{row.bitter}" for row in season.nights)
    return f"{season.name}: {kinds}; {nights}; a bitter night takes {season.bitter}"


def _creature(creature: Creature) -> str:
    return f"{creature.name}: {signed(creature.effect)}"


def _item(item: Item) -> str:
    uses = []
    if item.eases or item.ease:
        uses.append(f"eases {', '.join(item.eases)} by {item.ease}")
    if item.shields:
        uses.append(f"shields from {', '.join(item.shields)}")
    if item.guards:
        uses.append(f"keeps off {', '.join(item.guards)}")
    if item.warmth:
        uses.append(f"bitter nights take {item.warmth} less")
    if item.meal:
        uses.append(f"meals give {item.meal} more")
    if item.ration:
        uses.append(f"rations eaten give {item.ration} more")
    return f"{item.name}: {'; '.join(uses)}"
