"""`ostinato fetch`: a released model from the hub, whole and unaltered."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from engine.fetch import fetch as run
from engine.release import RELEASES
from runtime.cli import show
from runtime.cli.common import JsonFlag
from runtime.cli.show import Stages, print_json
from runtime.errors import BadInput
from runtime.settings import load_settings


def fetch(
    release: Annotated[str, typer.Argument(help="clef or clef-flash.", metavar="RELEASE")],
    out: Annotated[
        Path | None,
        typer.Option(help="Where to; default: releases/RELEASE in the data folder.", metavar="DIR"),
    ] = None,
    json: JsonFlag = False,
) -> int:
    """Get a released model: 55 GB for clef, 19 GB for clef-flash, at one pinned commit.

    The same command goes on where it stopped. Every file is hashed at the end: the small ones have
    to be those that this version knows, the weights those that the hub lists for the commit.

    Example: ostinato fetch clef --out clef
    then: ostinato extract --base Qwen3.8-27B --tuned clef --out clef-bundle
    """
    if release not in RELEASES:
        raise BadInput(f"{release}: no such release; take {' or '.join(RELEASES)}")
    pinned = RELEASES[release]
    folder = out or load_settings().home / "releases" / release
    with Stages(quiet=json) as stages:
        run(pinned, folder, stages.update)
    if json:
        print_json({"folder": folder, "repository": pinned.repository, "revision": pinned.revision})
    else:
        show.out.print(
            f"{folder}: {pinned.repository} at {pinned.revision[:7]}, every file hashed",
            soft_wrap=True,
            highlight=False,
        )
    return 0
