"""`ostinato replay --redecide BUNDLE`: the recorded decisions put to another model."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

import anyio
import msgspec
from rich.markup import escape

from engine.models import Model
from runtime.cli.common import engine_of, model_of
from runtime.cli.show import TASK, Table, out, print_json, progress, say
from runtime.errors import BadInput
from runtime.plots import new_figure, plot_redecided
from runtime.recordings import open_recordings
from runtime.redecide import RedecideReport, redecide_file
from runtime.settings import Settings

PARTLY_REFUSED = 3


def compare(
    file: Path,
    spec: str,
    settings: Settings,
    *,
    match: str | None,
    plot: Path | None,
    json: bool,
) -> int:
    """Ask, compare, print, draw."""
    model = model_of(spec, settings)
    if plot is not None:
        if plot.suffix != ".svg":
            raise BadInput(f"--plot {plot}: plots are SVG; name it {plot.stem}.svg")
        new_figure(1, 1)  # a missing library is said before an hour of asking
    with progress("asking", None, quiet=json) as bar:
        report = anyio.run(
            lambda: _compare(
                file,
                model,
                settings,
                match,
                lambda total: bar.update(TASK, total=total),
                lambda: bar.update(TASK, advance=1),
            )
        )
    if plot is not None:
        plot_redecided(report, plot)
    if json:
        print_json(_document(report))
    else:
        _show(report, model)
        if plot is not None:
            say(f"Plot: {plot}")
    return PARTLY_REFUSED if report.failed or report.matches_lost else 0


async def _compare(
    file: Path, model: Model, settings: Settings, match: str | None, on_total: Any, on_match: Any
) -> RedecideReport:
    source = secrets.token_hex(6)
    async with open_recordings(file) as recordings:
        on_total(1 if match is not None else recordings.count())
    async with engine_of(model, settings, source=source) as engine:
        return await redecide_file(
            file,
            engine,
            match=match,
            deadline_s=settings.deadline_s,
            source=source,
            on_match=on_match,
        )


def _document(report: RedecideReport) -> dict[str, Any]:
    document = msgspec.to_builtins(report)
    return document | {"agreement": report.agreement}


def _show(report: RedecideReport, model: Model) -> None:
    changes = _table(
        f"Recorded answers and those of {model.name}",
        ("question", "asked", "same best", "mean change", "largest", "in decision"),
    )
    scores = _table(
        "Where the rules settle the answer: recorded -> new",
        ("question", "known", "Brier", "ECE"),
    )
    for each in report.questions:
        changes.add_row(
            escape(each.question),
            f"{each.asked:,}",
            f"{each.agreed / each.asked:.1%}",
            f"{each.mean_change:.4f}",
            f"{each.largest_change:.4f}",
            each.largest_at,
        )
        if each.known:
            scores.add_row(
                escape(each.question),
                f"{each.known:,}",
                _pair(each.brier_recorded, each.brier_new),
                _pair(each.ece_recorded, each.ece_new),
            )
    out.print(changes)
    if scores.row_count:
        out.print(scores)
    out.print(
        f"{report.decisions:,} decisions of {report.matches:,} matches; the seats' policies would"
        f" choose another option in {report.changed:,}.",
        highlight=False,
    )
    if report.unanswered:
        out.print(f"{report.unanswered:,} decisions have no recorded answer; not asked.")
    for code, count in report.failed.items():
        out.print(f"[red]{count:,} not answered[/]: {code}", highlight=False)
    if report.matches_lost:
        out.print(f"[red]{report.matches_lost} matches cannot be read[/]; replay names the place.")
    if model.arbitrary:
        out.print("[yellow]This model's choices are arbitrary[/]: it has random weights.")


def _table(title: str, headings: tuple[str, ...]) -> Table:
    table = Table(title=title, title_justify="left")
    for heading in headings:
        justify = "left" if heading in ("question", "in decision") else "right"
        table.add_column(heading, justify=justify)
    return table


def _pair(recorded: float | None, new: float | None) -> str:
    return "-" if recorded is None or new is None else f"{recorded:.4f} -> {new:.4f}"
