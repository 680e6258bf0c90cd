from __future__ import annotations

import json

import pytest

from runtime.cli import nano
from runtime.cli.app import run

SHORT = ["--games", "tictactoe,kuhn_poker", "--positions", "5", "--matches", "2"]


def test_what_guessing_gets_is_shown_and_drawn(capsys, tmp_path):
    pytest.importorskip("matplotlib")
    plot = tmp_path / "nano.svg"
    command = ["bench", "nano", "--model", "mock:seed=1", *SHORT]
    assert run([*command, "--compare", "--plot", str(plot)]) == 0
    shown = capsys.readouterr().out
    assert "tictactoe: move" in shown
    assert "exploitable by" in shown
    assert "the same choice in 100.0%" in shown
    assert "choices are arbitrary" in shown
    assert "<svg" in plot.read_text()


def test_the_document_holds_every_table(capsys):
    assert run(["bench", "nano", "--model", "mock:seed=1", *SHORT, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {row["question"] for row in found["questions"]} >= {"tictactoe: move"}
    assert {row["against"] for row in found["matches"]} == {"random", "perfect"}
    assert len(found["invariance"]) == 10
    assert found["kuhn_poker"][0]["exploitability"] > 0
    assert found["formats"] == []


def test_connect_four_is_found_by_its_name_alone():
    assert nano._games("tictactoe,openspiel:connect_four") == (
        "tictactoe",
        "openspiel:connect_four(layout=replies)",
    )


def test_what_has_no_solver_is_refused(capsys, tmp_path):
    for arguments, message in (
        (["--games", "holdem"], "no solver"),
        (["--plot", str(tmp_path / "x.pdf")], ".svg"),
    ):
        assert run(["bench", "nano", "--model", "mock:seed=1", *arguments]) == 1
        assert message in capsys.readouterr().err
