"""Plots of reports as SVG files; the same report gives the same bytes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from runtime.errors import BadInput
from runtime.redecide import CELLS, RedecideReport

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def new_figure(width: float, height: float) -> Figure:
    """Give an empty figure, its size in inches.

    Raises:
        BadInput: Matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise BadInput(
            "plots need Matplotlib; install it with pip install 'ostinato[reports]'"
        ) from error
    return Figure(figsize=(width, height), layout="constrained")


def save(figure: Figure, path: Path) -> None:
    """Write a figure; raises BadInput if the file cannot be written."""
    from matplotlib import rc_context

    try:
        with rc_context({"svg.hashsalt": "ostinato"}):
            figure.savefig(path, format="svg", metadata={"Date": None})
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}; name a file that can be written") from error


def plot_redecided(report: RedecideReport, path: Path) -> None:
    """Draw recorded against new probabilities and, where truths are known, calibration.

    Raises:
        BadInput: Matplotlib is not installed, or the file cannot be written.
    """
    known = bool(report.new)
    figure = new_figure(9.0 if known else 4.8, 4.2)
    axes: Any = figure.subplots(1, 2 if known else 1, squeeze=False)[0]
    _plot_cells(axes[0], report)
    if known:
        axes[1].plot([0, 1], [0, 1], color="0.7", linewidth=1)
        for label, bins in (("recorded", report.recorded), (report.model, report.new)):
            axes[1].plot(
                [confidence for _, confidence, _ in bins],
                [right for _, _, right in bins],
                marker="o",
                label=label,
            )
        axes[1].set(
            xlabel="probability of the top option",
            ylabel="share in which it was right",
            xlim=(0, 1),
            ylim=(0, 1),
        )
        axes[1].legend()
    save(figure, path)


def _plot_cells(axes: Any, report: RedecideReport) -> None:
    from matplotlib.colors import LogNorm

    most = max(max(row) for row in report.cells)
    shown = axes.imshow(
        [
            [report.cells[row][column] or float("nan") for row in range(CELLS)]
            for column in range(CELLS)
        ],
        origin="lower",
        extent=(0, 1, 0, 1),
        norm=LogNorm(1, max(2, most)),
        cmap="viridis",
    )
    axes.figure.colorbar(shown, ax=axes, label="options")
    axes.set(xlabel="recorded probability", ylabel=f"probability by {report.model}")
