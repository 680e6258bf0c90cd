"""What the commands print: one JSON document, or tables and lines for people."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Self

import msgspec
import rich.table
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

from runtime.signals import SignalReport

out = Console()
err = Console(stderr=True)

MATCHES_SHOWN = 3

TASK = TaskID(0)
"""The one task of a bar that `progress` shows."""


class Table(rich.table.Table):
    """A table that folds what its columns do not hold: cut, an id or a path would be of no use."""

    def add_column(self, *header: Any, **column: Any) -> None:
        """Add a column as Rich does, but one that folds."""
        super().add_column(*header, **{"overflow": "fold", **column})


def print_json(document: Any) -> None:
    """Write one JSON document and a line end to standard output, nothing else.

    The standard library writes what msgspec does not: integers of any size, and, as escapes, lone
    surrogates that a caller used as a name.
    """
    sys.stdout.write(_encode(document) + "\n")
    sys.stdout.flush()


class Spool:
    """A list of a JSON document, kept on disk until it is printed, however long it grows."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115 - closed below

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, item: Any) -> None:
        """Append an item."""
        self._file.write(("," if self._file.tell() else "") + _encode(item))

    def print_json(self, before: dict[str, Any], name: str, after: dict[str, Any]) -> None:
        """Write one JSON document, with the list as `name` between fields that are not empty."""
        self._file.seek(0)
        sys.stdout.write(f'{_encode(before)[:-1]},"{name}":[')
        shutil.copyfileobj(self._file, sys.stdout)
        sys.stdout.write(f"],{_encode(after)[1:]}\n")
        sys.stdout.flush()


def _encode(document: Any) -> str:
    return json.dumps(msgspec.to_builtins(document), separators=(",", ":"))


def say(text: str) -> None:
    """Print a text as it is: what looks like markup in names and paths is none."""
    out.print(text, markup=False, highlight=False, soft_wrap=True)


def plain_table(title: str = "") -> Table:
    """Make a table whose columns fit 80 characters, without lines between them."""
    return Table(
        title=escape(title) or None,
        title_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
        show_edge=False,
    )


def show_signals(report: SignalReport) -> None:
    """Show which agents did not get on, and in which matches; nothing where all did."""
    if report.agents:
        out.print(signals_table(report))


def signals_table(report: SignalReport, title: str = "Signals") -> Table:
    """Give a table of the agents that did not get on; its caption names the first matches."""
    table = Table(title=escape(title), title_justify="left")
    kinds = ("stuck", "oscillating", "stale", "fallback")
    for heading in ("agent", "matches", *kinds):
        table.add_column(heading, justify="left" if heading == "agent" else "right")
    for each in report.agents:
        counts = [each.matches, *(getattr(each, kind) for kind in kinds)]
        table.add_row(escape(each.agent), *(f"{count:,}" for count in counts))
    shown = ", ".join(dict.fromkeys(each.match for each in report.matches[:MATCHES_SHOWN]))
    table.caption = escape(f"see {shown}") if shown else None
    return table


@contextmanager
def progress(label: str, total: int | None, *, quiet: bool) -> Iterator[Progress]:
    """Show a progress bar on a terminal while the block runs; its task is `TASK`."""
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
        console=err,
        disable=quiet or not err.is_terminal,
    )
    with bar:
        bar.add_task(label, total=total, note="")
        yield bar


class Stages(ExitStack):
    """One progress bar for each stage that the engine names."""

    def __init__(self, *, quiet: bool) -> None:
        super().__init__()
        self.quiet = quiet
        self._stage = ""

    def update(self, stage: str, done: int, total: int, note: str) -> None:
        """Show how far a stage is; the first call of a stage ends the one before."""
        if stage != self._stage:
            self.close()
            self._bar = self.enter_context(progress(stage, total, quiet=self.quiet))
            self._stage = stage
        self._bar.update(TASK, completed=done, note=note)
