"""The rules' values, in one record."""

from __future__ import annotations

from games.expedition.creatures import CREATURES
from games.expedition.items import ITEMS
from games.expedition.schema import Measures, Rules
from games.expedition.terrains import TERRAINS
from games.expedition.weathers import SEASONS, WEATHERS

RULES = Rules(
    measures=Measures(
        faces=12,
        energy_full=8,
        energy_start=7,
        energy_low=3,
        rations_most=1,
        rations_start=1,
        march_least=1,
        forage=1,
        meal=4,
        ration=3,
        deep=1,
        deep_faces=4,
        sound=1,
        items=3,
        distance=60,
        survival=40,
    ),
    terrains=TERRAINS,
    weathers=WEATHERS,
    seasons=SEASONS,
    creatures=CREATURES,
    items=ITEMS,
)
