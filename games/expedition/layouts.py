"""How a journey is told, as data: the journal's lines and what a step says of itself."""

from __future__ import annotations

import msgspec

from games.layouts import Layout

_STEP = "Day {day}. Step: the traveller "
_COST = " Energy {before} to {after}.{ending}\n"
_EVENT = "{changes}{ending}\n"
_PROSPECT = "nergy {before} to {after}"

PLAIN = Layout(
    name="plain",
    version=1,
    rules="",
    turns={
        "weather": "Day {day}. Weather: {action}.\n",
        "march": f"{_STEP}marches {{action}} from {{where}} into {{place}}.{_COST}",
        "edge": (
            f"{_STEP}marches {{action}} to the edge of the map and back into {{where}}.{_COST}"
        ),
        "rest": f"{_STEP}rests in {{where}}.{_COST}",
        "rest fed": f"{_STEP}rests in {{where}} and eats a ration.{_COST}",
        "forage": f"{_STEP}forages in {{where}}.{_COST}",
        "ground": f"Day {{day}}. Ground: {{action}}.{_EVENT}",
        "nobody": f"Day {{day}}. Creature: {{action}}.{_EVENT}",
        "kept off": f"Day {{day}}. Creature: {{action}}, kept off by the {{guard}}.{_EVENT}",
        "creature": f"Day {{day}}. Creature: the traveller meets {{meeting}}.{_EVENT}",
        "night": f"Day {{day}}. Night: {{action}}.{_EVENT}",
        "energy": " Energy {before} to {after}.",
        "rations": " Rations {before} to {after}.",
        "west": " Back west into {place}.",
        "collapsed": " The traveller collapses in {place}: {points:.1f} points.",
        "arrived": " The traveller has reached the far side in {place}: {points:.1f} points.",
        "out of days": (
            " The days are over, and the traveller stands in {place}: {points:.1f} points."
        ),
        "summary": (
            "Earlier entries are left out. It is day {day}.{weather}{deed} The traveller is in"
            " {place} with energy {energy} and rations {rations}. Next comes {coming}.\n"
        ),
        "summary weather": " Weather: {weather}.",
        "summary step": " Today's step: {deed}.",
        "summary over": "Earlier entries are left out.{ending}\n",
    },
    options={
        "march": f"Into {{place}}: e{_PROSPECT}.{{then}}",
        "edge": f"Edge of the map, back into {{place}}: e{_PROSPECT}.{{then}}",
        "rest": f"E{_PROSPECT}.{{then}}",
        "rest fed": f"E{_PROSPECT}, ration eaten.{{then}}",
        "forage": f"E{_PROSPECT}.{{then}}",
        "chances": " Of {faces}: {ground}; then {met}; {shelter} night.",
    },
)
BARE = msgspec.structs.replace(PLAIN, name="bare", options={})
LAYOUTS = {layout.name: layout for layout in (PLAIN, BARE)}
"""`bare` leaves it to the reader what a step comes to. Their rules are the book that is chosen."""
