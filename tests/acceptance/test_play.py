"""`ostinato play`: documents, seeds, going on, agents, games, and an engine that fails."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import Command

MOCK = ("--model", "mock:seed=1")
COUNTS = {"asked", "answered", "failed", "forced", "fallback", "refused", "discarded"}
NUMBERS = {"tokens_read", "tokens_reused", "p50_ms", "p95_ms"}


def play(ostinato: Command, *arguments: object, log: str = "games.db") -> dict[str, Any]:
    done = ostinato("play", *arguments, "--log", log, "--json")
    assert done.code == 0, done
    assert done.stderr == ""
    return done.document


def duel(game: str, one: str = "random", two: str = "random") -> tuple[str, ...]:
    return (game, "--seat", one, "--seat", two)


def replayed(ostinato: Command, log: str = "games.db") -> dict[str, Any]:
    done = ostinato("replay", log, "--json")
    assert done.code == 0, done
    return done.document


def test_one_document_says_all(ostinato: Command):
    document = play(ostinato, *duel("tictactoe"), "--matches", 3, "--seed", 5)
    assert set(document) == {"seed", "matches", "decisions", "signals", "log"}
    assert document["seed"] == 5
    assert document["log"] == "games.db"
    assert len({match["id"] for match in document["matches"]}) == 3
    for match in document["matches"]:
        assert set(match) == {"id", "returns", "reason", "turns"}
        assert match["reason"] == "terminated"
        assert 5 <= match["turns"] <= 9
        assert sum(match["returns"]) == 0
    assert set(document["decisions"]) == COUNTS | NUMBERS
    assert document["decisions"]["asked"] == 0
    assert not ostinato.home.exists()  # no seat asks, so no broker was needed


def test_decisions_are_counted_and_a_seed_gives_the_same_matches(ostinato: Command):
    command = (*duel("tictactoe", "decision", "random"), *MOCK, "--matches", 3, "--seed", 1)
    one, other = (play(ostinato, *command, log=log) for log in ("one.db", "other.db"))
    assert one["matches"] == other["matches"]
    decisions = one["decisions"]
    assert decisions["asked"] == decisions["answered"] > 3
    assert decisions["tokens_read"] > 0
    assert 0 < decisions["p50_ms"] <= decisions["p95_ms"]

    other_seed = play(ostinato, *command[:-1], 2, log="third.db")
    assert other_seed["matches"] != one["matches"]


def test_a_drawn_seed_is_told_and_repeats_the_run(ostinato: Command):
    drawn = play(ostinato, *duel("tictactoe"), log="drawn.db")
    again = play(ostinato, *duel("tictactoe"), "--seed", drawn["seed"], log="again.db")
    assert again["matches"] == drawn["matches"]


def test_played_again_it_goes_on(ostinato: Command):
    command = (*duel("tictactoe", "decision", "random"), *MOCK, "--seed", 1, "--matches")
    first = play(ostinato, *command, 2)
    same = play(ostinato, *command, 2)
    assert same["matches"] == first["matches"]
    assert same["decisions"]["asked"] == 0
    more = play(ostinato, *command, 4)
    assert more["matches"][:2] == first["matches"]
    assert replayed(ostinato)["matches"] == 4


def test_a_script_plays(ostinato: Command, tmp_path: Path):
    (tmp_path / "x.txt").write_text("top-left\ntop\ntop-right\n")
    (tmp_path / "o.txt").write_text("centre\n\nbottom\n")
    document = play(ostinato, *duel("tictactoe", "scripted:x.txt", "scripted:o.txt"))
    (match,) = document["matches"]
    assert (match["returns"], match["turns"]) == ([1.0, -1.0], 5)


@pytest.mark.parametrize(
    ("game", "seats"),
    [
        ("kuhn_poker", ("decision:temperature=0.7", "decision")),
        ("expedition(rules=short,size=tiny)", ("decision",)),
        ("openspiel:connect_four", ("decision", "random")),
        ("openspiel:hex(board_size=17)", ("decision", "decision")),
    ],
)
def test_games_are_played_and_replayed(ostinato: Command, game: str, seats: tuple[str, ...]):
    flags = [flag for seat in seats for flag in ("--seat", seat)]
    document = play(ostinato, game, *flags, *MOCK, "--seed", 3)
    assert document["decisions"]["asked"] == document["decisions"]["answered"] > 0
    assert {match["reason"] for match in document["matches"]} == {"terminated"}
    report = replayed(ostinato)
    assert report["identical"]
    assert report["turns"] == sum(match["turns"] for match in document["matches"])


def test_the_table_for_people(ostinato: Command):
    done = ostinato("play", *duel("tictactoe", "decision"), *MOCK, "--seed", 1, "--log", "a.db")
    assert done.code == 0
    for words in ("tictactoe (1)", "decision", "p95 ms", "Log: a.db (seed 1)", "arbitrary"):
        assert words in done.stdout
    assert done.stderr == ""  # the bar is for terminals


def test_failed_decisions_pause_and_the_same_command_goes_on(ostinato: Command):
    flags = ("--model", "mock:seed=1,fail=0.3", "--matches", 2, "--seed", 1, "--log", "a.db")
    command = ("play", *duel("tictactoe", "decision", "random"), *flags)
    done = ostinato(*command)
    assert done.code == 3
    assert done.stderr == ""
    paused = [line for line in done.stdout.splitlines() if line.startswith("paused: tictactoe-")]
    assert paused
    assert all("engine/failed" in line for line in paused)
    assert "The same command resumes paused matches." in done.stdout

    turns: list[int] = []
    matches: list[dict[str, Any]] = []
    for _ in range(20):
        done = ostinato(*command, "--json")
        matches = done.document["matches"]
        assert sum(match["turns"] for match in matches) >= sum(turns)
        turns = [match["turns"] for match in matches]
        if done.code == 0:
            break
        assert done.code == 3
    assert {match["reason"] for match in matches} == {"terminated"}
    assert replayed(ostinato, "a.db")["unfinished"] == 0


def test_a_fallback_plays_on_without_the_engine(ostinato: Command):
    flags = ("--model", "mock:seed=1,fail=1", "--fallback", "random", "--seed", 1)
    done = ostinato(
        *("play", *duel("tictactoe", "decision", "random"), *flags, "--log", "games.db", "--json")
    )
    assert done.code == 0, done
    document = done.document
    (match,) = document["matches"]
    assert match["reason"] == "terminated"
    decisions = document["decisions"]
    assert decisions["asked"] == decisions["failed"] == decisions["fallback"] > 0
    [agent] = document["signals"]["agents"]
    assert (agent["agent"], agent["fallback"]) == ("decision", decisions["fallback"])
    [seat] = document["signals"]["matches"]
    assert (seat["match"], seat["seat"]) == (match["id"], 0)
    assert replayed(ostinato)["identical"]


def test_signals_are_said_while_it_runs_and_at_the_end(ostinato: Command):
    """Every line of the log is a document of its own, and the table counts what they tell."""
    flags = ("--model", "mock:seed=1,fail=1", "--fallback", "random", "--seed", 1)
    done = ostinato(
        *("play", *duel("tictactoe", "decision", "random"), *flags, "--log", "a.db"),
        OSTINATO_LOG_FORMAT="json",
    )
    assert done.code == 0, done
    lines = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
    told = [line for line in lines if line["event"] == "agent: fallback"]
    assert told[0]["level"] == "warning"
    assert (told[0]["agent"], told[0]["seat"], told[0]["times"]) == ("decision", 0, 1)
    assert told[0]["match"] in done.stdout.split("Signals")[1]


def test_a_worker_that_dies_is_started_again(ostinato: Command):
    flags = ("--model", "mock:seed=1,crash=0.2", "--seed", 1)
    done = ostinato(
        "play", *duel("tictactoe", "decision", "random"), *flags, "--log", "a.db", "--json"
    )
    assert done.code == 0, done
    decisions = done.document["decisions"]
    assert decisions["asked"] == decisions["answered"] > 0
    assert "the worker died and is started again" in done.stderr


def test_a_person_plays_through_a_pipe(ostinato: Command):
    arguments = ("play", "kuhn_poker", "--seat", "human", "--seat", "random", "--seed", 1)
    done = ostinato(*arguments, "--log", "human.db", "--json", typed="maybe\n2\n1\n")
    assert done.code == 0, done
    assert "Your choice, number or label: 'maybe' is none of the 2 options." in done.stderr
    assert [match["reason"] for match in done.document["matches"]] == ["terminated"]
    ended = ostinato(*arguments, "--log", "other.db", typed="")
    message = ended.stderr.splitlines()[-1]
    assert ended.code == 1
    assert "standard input ended" in message
    assert "[runtime/bad_input]" in message
    assert ostinato("replay", "human.db").code == 0


def test_help_teaches_every_form_of_an_agent(ostinato: Command):
    said = " ".join(ostinato("play", "--help", COLUMNS="200").stdout.replace("│", " ").split())
    for form in ("decision:temperature=0.7", "mcts:simulations=", "minimax", "human", "scripted"):
        assert form in said
    assert "openspiel:BOT" in said
