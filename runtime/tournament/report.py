"""What a tournament came to: Markdown, CSV and SVG."""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path
from typing import Any

import msgspec

from runtime.errors import BadInput
from runtime.plots import new_figure, save
from runtime.tournament.ratings import bradley_terry
from runtime.tournament.run import Outcome, Stop
from runtime.tournament.stats import Elo, elo

_STOPS: dict[Stop, str] = {
    "all played": "every match of the schedule was counted",
    "matches": "the budget of matches is used up",
    "tokens": "the budget of tokens is used up",
    "minutes": "the budget of time is used up; the same command goes on",
    "elo0": "the test accepted elo0",
    "elo1": "the test accepted elo1",
}


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One agent in the final table; the best comes first.

    Attributes:
        rating, error: Elo and half its 95 % interval (two seats); skill and two standard
            deviations (more seats); the mean return and nothing (one seat).
        score: Share of points against the others of its matches.
    """

    name: str
    rating: float
    error: float
    matches: int
    won: int
    drawn: int
    lost: int
    score: float | None
    mean_return: float
    decisions_a_match: float
    tokens_a_match: float
    engine_s_a_match: float
    fallbacks: int


def final_table(outcome: Outcome) -> list[Row]:
    """Give the agents, best first; equals in the file's order."""
    plan, standings, seats = outcome.plan, outcome.standings, outcome.seats
    if seats == 2:
        rated = [
            (each.elo, each.error) for each in bradley_terry(standings.meetings, len(plan.agents))
        ]
    elif seats > 2:
        rated = [(mean, 2 * deviation) for mean, deviation in outcome.skills.ratings()]
    else:
        rated = [(line.returned / max(1, line.matches), 0.0) for line in standings.lines]
    rows: list[Row] = []
    for agent, line, (rating, error) in zip(plan.agents, standings.lines, rated, strict=True):
        count = max(1, line.matches)
        rows.append(
            Row(
                name=agent.name,
                rating=rating,
                error=error,
                matches=line.matches,
                won=line.won,
                drawn=line.drawn,
                lost=line.lost,
                score=line.points / count / (seats - 1) if seats > 1 else None,
                mean_return=line.returned / count,
                decisions_a_match=line.decisions / count,
                tokens_a_match=line.tokens / count,
                engine_s_a_match=line.engine_ms / 1000 / count,
                fallbacks=line.fallbacks,
            )
        )
    return sorted(rows, key=lambda row: -row.rating)


def pair_elo(outcome: Outcome) -> Elo | None:
    """Give the first agent's Elo over the second, by pairs; None unless just two met in pairs."""
    counts = outcome.standings.pairs.get((0, 1))
    return elo(counts) if counts and len(outcome.plan.agents) == 2 else None


def write_report(outcome: Outcome, folder: Path) -> None:
    """Write `report.md`, `standings.csv`, `seats.csv`, `ratings.svg` and `seats.svg`.

    Raises:
        BadInput: The folder cannot be written, or Matplotlib is not installed.
    """
    rows = final_table(outcome)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "report.md").write_text(markdown(outcome), encoding="utf-8")
        (folder / "standings.csv").write_text(_csv(rows), encoding="utf-8")
        (folder / "seats.csv").write_text(_seats_csv(outcome), encoding="utf-8")
    except OSError as error:
        raise BadInput(f"{folder}: {error.strerror}; name a folder that can be written") from error
    _plot_ratings(rows, unit(outcome), folder / "ratings.svg")
    _plot_seats(outcome, folder / "seats.svg")


def figures(outcome: Outcome) -> dict[str, list[str]]:
    """Give the final table as texts: each column's heading, and its cells from the best down."""
    rows = final_table(outcome)
    columns = {
        "agent": [row.name for row in rows],
        unit(outcome): [f"{row.rating:+.1f}" for row in rows],
    }
    if outcome.seats > 1:  # alone, nobody wins or loses against anybody
        columns |= {"95 %": [f"{row.error:.1f}" for row in rows]}
    columns |= {"matches": [f"{row.matches:,}" for row in rows]}
    if outcome.seats > 1:
        columns |= {
            "won": [f"{row.won:,}" for row in rows],
            "drawn": [f"{row.drawn:,}" for row in rows],
            "lost": [f"{row.lost:,}" for row in rows],
            "score": ["-" if row.score is None else f"{row.score:.1%}" for row in rows],
        }
    return columns | {
        "mean return": [f"{row.mean_return:+.3f}" for row in rows],
        "asked": [f"{row.decisions_a_match:.1f}" for row in rows],
        "tokens": [f"{row.tokens_a_match:,.0f}" for row in rows],
        "GPU s": [f"{row.engine_s_a_match:.3f}" for row in rows],
        "fallbacks": [f"{row.fallbacks:,}" for row in rows],
    }


def markdown(outcome: Outcome) -> str:
    """Give the report as text."""
    plan, standings, columns = outcome.plan, outcome.standings, figures(outcome)
    lines = [
        f"# {plan.game}, {plan.format.replace('_', ' ')}",
        "",
        summary(outcome),
        "",
        f"| {' | '.join(columns)} |",
        "| --- |" + " ---: |" * (len(columns) - 1),
    ]
    lines += [
        f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"
        for cells in zip(*columns.values(), strict=True)
    ]
    lines += ["", "Asked, tokens and GPU seconds are for each match.", ""]
    lines += tests(outcome)
    lines += ["## Seats", "", "| seat | won | drawn | lost | mean return |", "|" + " ---: |" * 5]
    for seat, (won, drawn, lost, returned) in enumerate(standings.seats):
        count = max(1, won + drawn + lost)
        lines.append(f"| {seat} | {won} | {drawn} | {lost} | {returned / count:+.3f} |")
    lines += ["", "![ratings](ratings.svg)", "", "![seats](seats.svg)", ""]
    return "\n".join(lines)


def summary(outcome: Outcome) -> str:
    """Give what was played, and why it ended, in a line."""
    standings = outcome.standings
    return (
        f"{standings.matches:,} matches of {_seats(outcome.seats)}, seed {outcome.plan.seed};"
        f" {_STOPS[outcome.stop]}."
        + (f" {standings.truncated:,} were truncated." if standings.truncated else "")
    )


def tests(outcome: Outcome) -> list[str]:
    """Give the lines on two agents' difference and on the sequential test, if there are any."""
    lines: list[str] = []
    names = [agent.name for agent in outcome.plan.agents]
    difference = pair_elo(outcome)
    if difference is not None:
        lines += [
            f"{names[0]} against {names[1]}, by pairs of one seed: Elo"
            f" {difference.difference:+.2f} ± {difference.error:.2f}, normalised"
            f" {difference.normalised:+.2f} ± {difference.normalised_error:.2f}, the stronger one"
            f" with {difference.superiority:.2%}.",
            "",
        ]
    test = outcome.plan.sprt
    if test is not None:
        lower, upper = test.bounds
        counts = outcome.standings.pairs.get((0, 1), [0] * 5)
        lines += [
            f"SPRT, {test.model} Elo {test.elo0:g} against {test.elo1:g}: LLR"
            f" {test.ratio(counts):.2f} (bounds {lower:.2f}, {upper:.2f}), pairs {counts}.",
            "",
        ]
    return lines


def _seats(count: int) -> str:
    return "1 seat" if count == 1 else f"{count} seats"


def unit(outcome: Outcome) -> str:
    """Name what agents are rated by."""
    return "mean return" if outcome.seats == 1 else "Elo" if outcome.seats == 2 else "skill"


def _csv(rows: list[Row]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(Row.__struct_fields__)
    writer.writerows(msgspec.structs.astuple(row) for row in rows)
    return text.getvalue()


def _seats_csv(outcome: Outcome) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("seat", "won", "drawn", "lost", "returned"))
    writer.writerows((seat, *sums) for seat, sums in enumerate(outcome.standings.seats))
    return text.getvalue()


def _plot_ratings(rows: list[Row], unit: str, path: Path) -> None:
    figure = new_figure(6.5, 1.2 + 0.35 * len(rows))
    axes: Any = figure.subplots()
    places = list(range(len(rows)))[::-1]
    errors = [row.error if math.isfinite(row.error) else 0.0 for row in rows]
    axes.errorbar([row.rating for row in rows], places, xerr=errors, fmt="o", capsize=3)
    axes.set_yticks(places, [row.name for row in rows])
    axes.set(xlabel=unit, ylim=(-0.6, len(rows) - 0.4))
    axes.grid(axis="x", alpha=0.3)
    save(figure, path)


def _plot_seats(outcome: Outcome, path: Path) -> None:
    figure = new_figure(6.5, 1.4 + 0.35 * outcome.seats)
    axes: Any = figure.subplots()
    left = [0.0] * outcome.seats
    for column, label in enumerate(("won", "drawn", "lost")):
        shares = [sums[column] / max(1, sum(sums[:3])) for sums in outcome.standings.seats]
        axes.barh(range(outcome.seats), shares, left=left, label=label)
        left = [one + two for one, two in zip(left, shares, strict=True)]
    axes.set_yticks(range(outcome.seats), [f"seat {seat}" for seat in range(outcome.seats)])
    axes.set(xlabel="share of matches", xlim=(0, 1))
    axes.legend(ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    save(figure, path)
