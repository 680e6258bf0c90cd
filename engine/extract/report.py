"""What an extraction found, for people: a table and a drawing of the singular values."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from engine.extract.compare import Finding
from engine.extract.files import write_bytes
from engine.manifest import MatrixError

if TYPE_CHECKING:
    from engine.extract.job import Matrix

REPORT: Final = "report.md"
DRAWING: Final = "singular_values.svg"

_LAYER = re.compile(r"\.layers\.(\d+)\.(.+)\.weight")
_CLEAR = 2.0  # of a gap; below it the rank is a matter of opinion
_PANEL = (220, 130)  # pixels, with room for the title
_PLOT = (190, 100)
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000", "#999")


def write_report(
    folder: Path,
    matrices: Mapping[str, Matrix],
    errors: Mapping[str, MatrixError],
    findings: list[Finding],
    *,
    rank: int,
    unrecorded: str,
) -> None:
    """Write the report and its drawing into a bundle's folder.

    Args:
        folder: The bundle's.
        matrices: What changed.
        errors: What the adapter leaves of each change.
        findings: What was left out.
        rank: The adapter's.
        unrecorded: Why the bundle has no answer to the fixed question; empty if it has.

    Raises:
        NotWritten: The disk is full or may not be written.
    """
    gaps = [matrix.gap for matrix in matrices.values() if not matrix.full]
    clear = min(gaps, default=0.0)
    lines = [
        "# Extraction",
        "",
        f"{len(matrices)} matrices changed; common rank {rank}. The last singular value that "
        f"counts is at least {clear:.1f} times the first that does not"
        + ("." if clear >= _CLEAR else ": the end of the rank is not clear."),
        "",
        f"![Singular values]({DRAWING})",
        "",
        "| matrix | rank | gap | error of the change | error of the weight |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for name, matrix in matrices.items():
        error = errors[name]
        found = f"{matrix.rank} (all)" if matrix.full else str(matrix.rank)
        lines.append(
            f"| {name} | {found} | {matrix.gap:.1f} | {error.change:.2%} | {error.weight:.3%} |"
        )
    if findings:
        lines += ["", "Left out:", "", "| tensor | what | error |", "| --- | --- | ---: |"]
        lines += [f"| {item.tensor} | {item.what} | {item.error:.3%} |" for item in findings]
    if unrecorded:
        lines += ["", f"No answer to the fixed question is recorded: {unrecorded}. A worker that "]
        lines[-1] += "loads this bundle cannot compare its own with it."
    write_bytes(folder / REPORT, "\n".join([*lines, ""]).encode())
    write_bytes(folder / DRAWING, _drawing(matrices, rank).encode())


def _drawing(matrices: Mapping[str, Matrix], rank: int) -> str:
    """Draw a panel for each layer: a line for each matrix, its values on a logarithmic scale."""
    layers: dict[int, dict[str, list[float]]] = {}
    for name, matrix in matrices.items():
        match = _LAYER.search(name)
        assert match is not None
        positive = [value for value in matrix.values if value > 0]
        layers.setdefault(int(match[1]), {})[match[2]] = positive
    values = [value for panel in layers.values() for line in panel.values() for value in line]
    low, high = math.log10(min(values)), math.log10(max(values))
    kinds = sorted({kind for panel in layers.values() for kind in panel})
    columns = min(6, len(layers))
    width, height = columns * _PANEL[0], -(-len(layers) // columns) * _PANEL[1]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height + 130}" '
        'font-family="sans-serif" font-size="11">',
        '<rect width="100%" height="100%" fill="#fff"/>',
    ]
    for index, (layer, panel) in enumerate(sorted(layers.items())):
        longest = max(2, *(len(line) for line in panel.values()))
        x, y = (index % columns) * _PANEL[0] + 10, (index // columns) * _PANEL[1] + 20
        edge = _PLOT[0] * (rank - 0.5) / (longest - 1)
        parts.append(
            f'<g transform="translate({x},{y})"><text y="-5">layer {layer}: 1 to {longest}, '
            f"10^{low:.1f} to 10^{high:.1f}</text>"
            f'<rect width="{_PLOT[0]}" height="{_PLOT[1]}" fill="none" stroke="#ccc"/>'
            f'<path d="M{edge:.1f} 0V{_PLOT[1]}" stroke="#999" stroke-dasharray="3"/>'
        )
        for kind, line in sorted(panel.items()):
            points = " ".join(
                f"{_PLOT[0] * place / (longest - 1):.1f},"
                f"{_PLOT[1] * (high - math.log10(value)) / max(high - low, 1e-9):.1f}"
                for place, value in enumerate(line)
            )
            colour = _COLOURS[kinds.index(kind) % len(_COLOURS)]
            parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}"/>')
        parts.append("</g>")
    for index, kind in enumerate(kinds):
        place = f'x="{10 + index // 6 * 150}" y="{height + 20 + index % 6 * 16}"'
        parts.append(f'<text {place} fill="{_COLOURS[index % len(_COLOURS)]}">{kind}</text>')
    return "\n".join([*parts, "</svg>", ""])
