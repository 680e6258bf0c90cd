"""Small pieces of text that rulebooks, journal and options share."""

from __future__ import annotations

from collections.abc import Sequence

from games.expedition.schema import Effect, Happening

NUMBERS = ("no", "one", "two", "three", "four", "five", "six")


def listed(words: Sequence[str], *, last: str = "and") -> str:
    """Give `a`, `a and b`, `a, b and c`; `nothing` for no words."""
    if not words:
        return "nothing"
    head, tail = words[:-1], words[-1]
    return f"{', '.join(head)} {last} {tail}" if head else tail


def effect(value: Effect) -> str:
    """Say what a happening does, as in `takes 2 energy`."""
    parts = [
        f"{'gives' if amount > 0 else 'takes'} {abs(amount)} {what}"
        for amount, what in ((value.energy, "energy"), (value.rations, "ration"))
        if amount
    ]
    if value.west:
        parts.append("drives the traveller one region west")
    return " and ".join(parts) or "has no effect"


def signed(value: Effect) -> str:
    """Say the same in a few characters, as in `-2 energy`."""
    parts = [
        f"{amount:+d} {what}"
        for amount, what in ((value.energy, "energy"), (value.rations, "ration"))
        if amount
    ]
    if value.west:
        parts.append("one region west")
    return ", ".join(parts) or "no effect"


def faces(happenings: Sequence[Happening]) -> str:
    """Give the faces of all of a roll's happenings, the first as what is left over."""
    plain, *some = happenings
    told = [f"{some_one.name} on {some_one.faces} ({effect(some_one.effect)})" for some_one in some]
    return f"{', '.join(told)}, {plain.name} on the other {plain.faces}"


def mean_energy(happenings: Sequence[Happening]) -> float:
    """Give the mean energy of a roll."""
    total = sum(happening.faces for happening in happenings)
    return sum(happening.faces * happening.effect.energy for happening in happenings) / total


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Give a table with columns parted by bars."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
