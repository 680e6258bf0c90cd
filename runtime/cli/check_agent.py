"""`ostinato check-agent`: an agent held to what every agent has to do."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from runtime.agents.registry import FORMS, make_agent
from runtime.cli.common import JsonFlag
from runtime.cli.show import out, print_json, progress, say
from runtime.trial import GAMES, Tried
from runtime.try_agent import try_in_processes


def check_agent(
    agent: Annotated[
        str,
        typer.Argument(help=f"As `ostinato play --seat` takes it: {FORMS}.", metavar="AGENT"),
    ],
    game: Annotated[
        list[str] | None,
        typer.Option(
            "--game",
            help="A game to play, as often as there are; default: tictactoe, kuhn_poker, and three"
            " with awkward options (255 of them; 400 in parts; odd labels).",
            metavar="GAME",
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(help="Matches of each game.", min=1)] = 3,
    deadline_s: Annotated[
        float, typer.Option("--deadline", help="Seconds for one turn.", min=0.001, max=3600)
    ] = 10.0,
    json: JsonFlag = False,
) -> int:
    """Let an agent play against random ones and see whether it keeps to what agents have to do.

    It names only labels that are offered, raises nothing and comes back in time; it chooses the
    same under the same seed, in a match that is resumed, beside other matches, and under two hash
    seeds; and it bears a model that fails. A failure names the law, the game, the seed and the
    turn. Questions are answered by the mock model. Exit code 0 only if every law is kept.

    Example: ostinato check-agent mcts:simulations=50 --game tictactoe
    """
    make_agent(agent)
    with progress(f"checking {agent}", None, quiet=json):
        tried = try_in_processes(agent, game or GAMES, seeds=seeds, deadline_s=deadline_s)
    if json:
        print_json({"agent": agent, "games": tried})
    else:
        _show(agent, tried)
    return 0


def _show(agent: str, tried: list[Tried]) -> None:
    table = Table(title=agent, title_justify="left")
    for heading in ("game", "matches", "turns", "decisions"):
        table.add_column(heading, justify="left" if heading == "game" else "right")
    for each in tried:
        counts = (each.matches, each.turns, each.decisions)
        table.add_row(each.game, *("-" if each.refused else f"{count:,}" for count in counts))
    out.print(table)
    for each in tried:
        if each.refused:
            say(f"{each.game}: not played: {each.refused}")
    out.print("[green]keeps every law[/]")
