"""`ostinato check`: a game held to every law that games have to keep."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from runtime.cli.common import JsonFlag
from runtime.cli.show import out, print_json, progress
from runtime.conformance import Checked, check_in_processes


def check(
    game: Annotated[
        str,
        typer.Argument(
            help="A game's id: tictactoe, openspiel:go(board_size=9), your own.", metavar="GAME"
        ),
    ],
    seeds: Annotated[int, typer.Option(help="Random matches.", min=1)] = 20,
    seats: Annotated[
        int | None,
        typer.Option(help="Seats of every match; by default the most and the fewest.", min=1),
    ] = None,
    limit: Annotated[
        int, typer.Option(help="Go through all play that has at most so many positions.", min=1)
    ] = 2_000,
    most_turns: Annotated[int, typer.Option(help="Where a random match is cut.", min=1)] = 1_000,
    json: JsonFlag = False,
) -> int:
    """Play a game at random and hold it to every law.

    Facts, options, questions, growth of the public text, leaks between seats, replay, states that
    change, illegal actions, rebasing, payoffs; and the same matches under two hash seeds. A failure
    names the law, the seed, the turn and the difference. Exit code 0 only if every law is kept.

    Example: ostinato check "holdem(stack=50)" --seats 3
    """
    with progress(f"checking {game}", None, quiet=json):
        checked = check_in_processes(
            game, seeds=seeds, seats=seats, limit=limit, most_turns=most_turns
        )
    if json:
        print_json(checked)
    else:
        _show(checked)
    return 0


def _show(checked: Checked) -> None:
    report = checked.report
    every = "more than the limit" if report.positions is None else f"{report.positions:,}"
    rows = {
        "matches": f"{report.matches:,} ({report.unfinished} cut)",
        "turns": f"{report.turns:,}, at most {report.longest:,} in a match",
        "positions": every,
        "options": f"at most {report.most_options:,}",
        "information sets": f"{report.information_sets:,}",
        "turns taken differently": f"{report.followed:,}, to find leaks",
        "turns a second": f"{checked.turns_per_s:,.0f}",
        "views a second": f"{checked.views_per_s:,.0f}",
        "digest": report.digest[:16],
    }
    table = Table("", report.game, show_header=True)
    for name, value in rows.items():
        table.add_row(name, value)
    out.print(table)
    out.print("[green]keeps every law[/]")
