"""`ostinato replay --at VERSION`: one moment of a match."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import msgspec
from rich.markup import escape

from runtime.cli.show import out, print_json, say
from runtime.fold import state_hash
from runtime.recordings import open_recordings
from runtime.travel import Moment, open_moment


def show(file: Path, match: str, version: int, *, home: Path, json: bool) -> int:
    """Print the state, each seat's view and, at a decision, the request."""
    moment = anyio.run(_open, file, match, version, home)
    document = _document(moment)
    if json:
        print_json(document)
        return 0
    out.print(
        f"[bold]{escape(match)}[/], version {version}: {document['event']['type']}"
        f" (turn {document['turn']}, to act: {document['actor']})",
        highlight=False,
    )
    out.rule("event", align="left")
    out.print_json(data=document["event"])
    out.rule("state", align="left")
    say(f"{document['state']}\nSHA-256 {document['state_hash']}")
    publics: dict[str, list[int]] = {}  # more than one only where seats have layouts of their own
    for seat, view in enumerate(moment.views):
        publics.setdefault(view.public, []).append(seat)
    for public, seats in publics.items():
        who = "every seat sees" if len(publics) == 1 else f"seats {seats} see"
        out.rule(f"what {who}, {len(public)} characters", align="left")
        say(public.rstrip("\n"))
    for seat, view in enumerate(moment.views):
        out.rule(f"what seat {seat} sees besides", align="left")
        say(view.private.rstrip("\n"))
    if moment.request is not None:
        request = moment.request
        out.rule(f"request, {request.length} bytes", align="left")
        say(f"{document['request']['bytes']}\nSHA-256 {request.sha256}")
    return 0


async def _open(file: Path, match: str, version: int, home: Path) -> Moment:
    async with open_recordings(file) as recordings:
        return open_moment(recordings, match, version, home=home)


def _document(moment: Moment) -> dict[str, Any]:
    fold, recorded = moment.fold, moment.recorded
    started = fold.started
    document: dict[str, Any] = {
        "match": fold.match,
        "version": recorded.version,
        "game": started.game,
        "seats": started.seats,
        "parent": started.parent,
        "turn": fold.turn,
        "epoch": fold.epoch,
        "actor": _actor(fold.state.actor),
        "event": msgspec.to_builtins(recorded.event),
        "hash": recorded.hash.hex(),
        "state": fold.state.encode().decode("utf-8", "backslashreplace"),
        "state_hash": state_hash(fold.state),
        "returns": fold.state.returns(),
        "options": [option.id for option in fold.state.options()],
        "views": [{"public": view.public, "private": view.private} for view in moment.views],
        "request": None,
    }
    if moment.asked is not None and moment.request is not None and moment.request_bytes:
        document["request"] = {
            "decision": moment.asked.decision,
            "seat": moment.asked.seat,
            "length": moment.request.length,
            "sha256": moment.request.sha256,
            "bytes": moment.request_bytes.decode(),
        }
    return document


def _actor(actor: int | None) -> str:
    return "nobody" if actor is None else "chance" if actor < 0 else f"seat {actor}"
