"""One journey's map, season and kit, drawn from a seed; fixed for the whole match."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TypeVar

import msgspec

from games.expedition.schema import Item, Rules, Season, Terrain

T = TypeVar("T")


class Size(msgspec.Struct, frozen=True):
    """How large a map is, in regions, and how many days a journey over it may take."""

    columns: int
    rows: int
    days: int


class World(msgspec.Struct, frozen=True):
    """What stays the same during a journey.

    Attributes:
        land: The terrain of every region, row by row from the north, each row from the west.
        kit: The equipment carried.
    """

    rules: Rules
    size: Size
    season: Season
    kit: tuple[Item, ...]
    land: tuple[Terrain, ...]

    @property
    def days(self) -> int:
        """Days after which the journey ends."""
        return self.size.days

    @property
    def last_column(self) -> int:
        """The column whose regions are the far side."""
        return self.size.columns - 1

    @property
    def start(self) -> int:
        """The middle region of the western edge."""
        return self.size.rows // 2 * self.size.columns

    def column(self, cell: int) -> int:
        """Give a region's column, from 0 in the west."""
        return cell % self.size.columns

    def neighbour(self, cell: int, direction: str) -> int:
        """Give the next region in a direction; at the edge of the map, the region itself."""
        row, column = divmod(cell, self.size.columns)
        if direction == "north":
            row = max(0, row - 1)
        elif direction == "south":
            row = min(self.size.rows - 1, row + 1)
        elif direction == "east":
            column = min(self.last_column, column + 1)
        else:
            column = max(0, column - 1)
        return row * self.size.columns + column

    def name(self, cell: int) -> str:
        """Give a region's name: a letter for its column, a number for its row."""
        row, column = divmod(cell, self.size.columns)
        return f"{chr(ord('A') + column)}{row + 1}"


def draw_world(rules: Rules, size: Size, seed: int) -> World:
    """Draw the world of a seed; the same on every machine."""
    draw = _Draws(seed)
    season = draw.one(rules.seasons)
    left = list(rules.items)
    kit = tuple(left.pop(draw.below(len(left))) for _ in range(rules.measures.items))
    bag = [terrain for terrain in rules.terrains for _ in range(terrain.share)]
    land = tuple(draw.one(bag) for _ in range(size.columns * size.rows))
    return World(rules, size, season, kit, land)


class _Draws:
    """Numbers from SHA-256 of the seed and a counter."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._count = 0

    def below(self, bound: int) -> int:
        digest = hashlib.sha256(f"expedition {self._seed} {self._count}".encode()).digest()
        self._count += 1
        # 256 bits against a bound of some dozens: the remainder's bias is far below 1e-70
        return int.from_bytes(digest) % bound

    def one(self, things: Sequence[T]) -> T:
        return things[self.below(len(things))]
