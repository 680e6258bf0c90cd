"""`ostinato replay` with --at, --redecide, --fork and --processes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from games import load_game
from store.sqlite import open_log
from tests.support.command import Done
from tests.support.engines import DirectEngine
from tests.support.matches import seat
from tests.support.runs import KeptRun as Run


@pytest.fixture
def match(tmp_path: Path) -> str:
    """Play into games.db and give the first match's id."""

    async def play() -> str:
        log = open_log(tmp_path / "games.db")
        seats = [seat("decision"), seat("random")]
        run = Run(log, load_game("tictactoe"), seats, matches=3, seed=1)
        report = await run.play(DirectEngine())
        await log.close()
        return report.matches[0].match

    return anyio.run(play)


def test_a_moment_has_state_views_and_the_request(here: Callable[..., Done], match: str):
    document = here("replay", "games.db", "--match", match, "--at", 1, "--json").document
    assert document["event"]["type"] == "decision_requested"
    request = document["request"]
    data = request["bytes"].encode()
    assert len(data) == request["length"] == document["event"]["length"]
    assert hashlib.sha256(data).hexdigest() == request["sha256"] == document["event"]["sha256"]
    assert document["views"][0]["public"] == document["views"][1]["public"]
    assert "You play X." in document["views"][0]["private"]
    shown = here("replay", "games.db", "--match", match, "--at", 1)
    assert shown.code == 0
    for part in (request["bytes"], request["sha256"], "You play O."):
        assert part in shown.stdout
    none = here("replay", "games.db", "--match", match, "--at", 0, "--json").document
    assert none["request"] is None


def test_redecided_by_another_model(here: Callable[..., Done], match: str, tmp_path: Path):
    command = ("replay", "games.db", "--redecide")
    other = here(*command, "mock:seed=2", "--plot", tmp_path / "p.svg", "--json").document
    assert other["decisions"] > 0
    assert other["changed"] > 0
    assert other["agreement"] < 1
    assert b"</svg>" in (tmp_path / "p.svg").read_bytes()
    shown = here(*command, "mock:seed=2,fail=1")
    assert shown.code == 3
    assert "not answered" in shown.stdout


def test_forked_matches_say_where_they_come_from(here: Callable[..., Done], match: str):
    seats = ("--seat", "random", "--seat", "random")
    command = ("replay", "games.db", "--match", match, "--fork", 3, *seats)
    document = here(*command, "--json").document
    assert document["parent"] == {"match": match, "version": 3}
    assert here(*command, "--json").document == document  # it is there already
    start = here("replay", "games.db", "--match", document["id"], "--at", 0, "--json").document
    assert start["parent"]["match"] == match
    replayed = here("replay", "games.db", "--processes", 2, "--json").document
    assert (replayed["matches"], replayed["identical"]) == (4, True)
    elsewhere = here(*command, "--log", "other.db", "--json").document
    assert elsewhere["returns"] == document["returns"]
    whole = here(*command[:4], "--fork", 0, *seats, "--json").document
    assert whole["parent"] == {"match": match, "version": 0}


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--at", 0), "--at needs --match"),
        (("--fork", 0, "--match", "m"), "--fork needs --seat"),
        (("--fork", 0, "--seat", "random"), "--fork needs --match"),
        (("--plot", "p.svg"), "--plot needs --redecide"),
        (("--seat", "random"), "--seat needs --fork"),
        (("--log", "x.db"), "--log needs --fork"),
        (("--at", 0, "--match", "m", "--redecide", "mock"), "take one of --at and --redecide"),
    ],
)
def test_flags_that_say_nothing_together(
    here: Callable[..., Done], flags: tuple[object, ...], says: str
):
    assert says in here("replay", "games.db", *flags).refused("runtime/usage", exit=2)


def test_wrong_versions_and_names(here: Callable[..., Done], match: str):
    at = ("replay", "games.db", "--match", match)
    assert "has versions 0 to" in here(*at, "--at", 99).refused("runtime/bad_input")
    seats = ("--seat", "random", "--seat", "random")
    assert "has versions 0 to" in here(*at, "--fork", 99, *seats).refused("runtime/bad_input")
    here("export", "games.db", "all.jsonl")
    file = ("replay", "all.jsonl", "--match", match, "--fork", 0, *seats)
    assert "name a log with --log" in here(*file).refused("runtime/usage", exit=2)
    plot = ("--redecide", "mock", "--plot", "p.png")
    assert "p.svg" in here(*at, *plot).refused("runtime/bad_input")
