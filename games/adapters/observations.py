"""Arrays as text, for games whose state has no better one."""

from __future__ import annotations

from typing import Any

MOST_NUMBERS = 2_000
"""An observation with more is a picture, not something to read."""


def text_of(observed: Any) -> str | None:
    """Write an observation number by number, or give None where nobody could read it.

    An array of two dimensions is a grid, of three (row, column, plane) one grid for each plane.
    """
    if isinstance(observed, str):
        return observed
    if isinstance(observed, (int, float)):
        return f"{observed:g}"
    shape = getattr(observed, "shape", None)
    if shape is None or observed.size > MOST_NUMBERS or len(shape) > 3:
        return None
    values = observed.tolist()
    if len(shape) == 0:
        return _number(values)
    if len(shape) == 1:
        return _row(values)
    if len(shape) == 2:
        return _grid(values)
    planes = ([[cell[plane] for cell in row] for row in values] for plane in range(shape[2]))
    return "\n".join(f"Plane {number}:\n{_grid(plane)}" for number, plane in enumerate(planes))


def _grid(rows: list[list[Any]]) -> str:
    return "\n".join(map(_row, rows))


def _row(values: list[Any]) -> str:
    return " ".join(map(_number, values))


def _number(value: Any) -> str:
    return f"{float(value):g}"
