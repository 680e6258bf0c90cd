"""The rulebook's chapter of tables: nothing new, everything reckoned from the entries."""

from __future__ import annotations

from games.expedition import rules as law
from games.expedition.phrases import mean_energy, table
from games.expedition.schema import Rules, Terrain


def reckoning(rules: Rules) -> str:
    """Write the tables of prices and averages."""
    return f"""Reckoning

The tables of this chapter contain no rule of their own. They are reckoned from the entries above, \
for travellers who would rather look things up than add them. All of them are for a traveller \
without equipment; what the equipment of the journey changes must be taken into account.

### What a march costs

For every terrain and every weather, the energy that a march into the terrain takes on such a day.

{_prices(rules)}

### What a day of foraging comes to

The cost of foraging depends on ground and weather only. Its yield depends on the terrain only. \
The table gives the cost on a day without extra, the average energy from meals, what both make \
together, and the faces of {rules.measures.faces} that put a ration into the pack. Where the \
weather is hard on the ground, its extra is to be subtracted.

{_foraging(rules)}

### What the country does on average

The average energy that the ground brings after a march, that {law.DEEP_SLEEP} and the terrain \
bring together to one who rests there, and that the creatures bring on any day. Rations and ground \
given or taken are not energy, and are not in the table; neither is the night, which chapter 9 has.

{_averages(rules)}"""


def _prices(rules: Rules) -> str:
    rows = [
        (
            terrain.name,
            *(
                str(law.march_cost(rules.measures, terrain, weather, ()))
                for weather in rules.weathers
            ),
        )
        for terrain in rules.terrains
    ]
    return table(("march into", *(weather.name for weather in rules.weathers)), rows)


def _foraging(rules: Rules) -> str:
    def row(terrain: Terrain) -> tuple[str, ...]:
        cost = rules.measures.forage
        meals = mean_energy(law.ground(rules.measures, terrain, (), "forage"))
        return (
            terrain.name,
            str(cost),
            f"{meals:.2f}",
            f"{meals - cost:+.2f}",
            str(terrain.find),
        )

    header = ("foraging in", "cost", "meals", "together", "ration")
    return table(header, [row(terrain) for terrain in rules.terrains])


def _averages(rules: Rules) -> str:
    def row(terrain: Terrain) -> tuple[str, ...]:
        march = mean_energy(law.ground(rules.measures, terrain, (), "march"))
        sleep = mean_energy(law.ground(rules.measures, terrain, (), "rest"))
        met = mean_energy(law.creatures(rules, terrain, ()))
        return (terrain.name, f"{march:+.2f}", f"{terrain.rest + sleep:+.2f}", f"{met:+.2f}")

    header = ("terrain", "ground after a march", "rest and its sleep", "creatures")
    return table(header, [row(terrain) for terrain in rules.terrains])
