"""How a game of OpenSpiel is told, as data."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from games.layouts import Layout
from games.questions import Option

if TYPE_CHECKING:
    import pyspiel

PLAIN = Layout(
    name="plain",
    version=1,
    rules="""\
{title}
Rules, notation and the numbers of players are those of OpenSpiel's {name}.
Players: {seats}. A player's payoff is from {low:g} to {high:g}{sum}.
{shared}
PLAY
""",
    turns={"act": "{who}: {action}\n", "announce": "{public}\n"},
    options={},
)
BARE = msgspec.structs.replace(
    PLAIN, name="bare", rules="{title}\n\nPLAY\n", turns={"act": "", "announce": "{public}\n"}
)
HINTS = msgspec.structs.replace(
    PLAIN, name="hints", options={"ends": "ends the match with a payoff of {payoff:g}"}
)
REPLIES = msgspec.structs.replace(
    HINTS,
    name="replies",
    options={**HINTS.options, "wins": "wins at once", "lets": "lets player {other} win at once"},
)


def layouts_of(*, perfect: bool) -> dict[str, Layout]:
    """Give the layouts that a game has, by name.

    `bare` tells neither what is played for nor the actions so far, only what there is to see.
    `hints` says of an option that it ends the match, and how; `replies` says whether it wins, which
    is to end it with the highest payoff of all, and whether the next player could then win. What
    either would tell of a game that hides something, the seat may not know.
    """
    layouts = (PLAIN, BARE, HINTS, REPLIES) if perfect else (PLAIN, BARE)
    return {layout.name: layout for layout in layouts}


def option(layout: Layout, state: pyspiel.State, label: str, number: int) -> Option:
    """Give the option of an action, with what the layout tells of it."""
    if "ends" not in layout.options:
        return Option(label)
    seat, after = state.current_player(), state.child(number)
    if after.is_terminal():
        fact = "wins" if "wins" in layout.options and _wins(after, seat) else "ends"
        return Option(label, layout.describe([fact], payoff=after.returns()[seat]))
    other = after.current_player()
    if "lets" not in layout.options or after.is_chance_node() or other == seat:
        return Option(label)
    lets = any(_wins(after.child(reply), other) for reply in after.legal_actions())
    return Option(label, layout.describe(["lets"], other=other) if lets else None)


def _wins(state: pyspiel.State, seat: int) -> bool:
    """Whether a match is over and nobody else has got as much."""
    if not state.is_terminal():
        return False
    own, *others = sorted(state.returns(), reverse=True)
    return state.returns()[seat] == own and own not in others
