"""`ostinato tournament` as a person sees it."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from runtime.cli import tournament
from runtime.cli.app import run

CUP = """
game = "tictactoe"
seeds = 2
[[agents]]
name = "ada"
agent = "random"
[[agents]]
name = "bob"
agent = "random"
"""


def test_standings_are_shown_while_it_runs_and_a_table_at_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = io.StringIO()
    console = Console(file=terminal, force_terminal=True, width=100)
    monkeypatch.setattr(tournament, "err", console)
    monkeypatch.chdir(tmp_path)
    Path("cup.toml").write_text(CUP)
    tables: list[str] = []
    for _ in range(2):  # the second time it is all played
        assert run(["tournament", "cup.toml"]) == 0
        tables.append(capsys.readouterr().out)
    live = terminal.getvalue()
    assert "4/4" in live
    assert "mean return" in live
    assert "score" in tables[0]
    for shown in (live, tables[0]):
        assert "ada" in shown
        assert "bob" in shown
    assert "4 matches of 2 seats" in tables[0]
    assert "Report: cup-report/report.md" in tables[0]
    assert tables[1] == tables[0]


def test_names_of_any_characters_are_shown_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = io.StringIO()
    monkeypatch.setattr(tournament, "err", Console(file=terminal, force_terminal=True, width=100))
    monkeypatch.chdir(tmp_path)
    Path("cup.toml").write_text(CUP.replace('"ada"', '"[/a] a|da"'))
    assert run(["tournament", "cup.toml"]) == 0
    assert "[/a]" in terminal.getvalue()
    shown = capsys.readouterr().out
    assert "[/a]" in shown
    assert max(map(len, shown.splitlines())) <= 80
    assert "| [/a] a&#124;da |" in Path("cup-report/report.md").read_text()


def test_alone_nobody_wins_or_loses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("solo.toml").write_text(CUP.replace("tictactoe", "expedition"))
    assert run(["tournament", "solo.toml"]) == 0
    shown = capsys.readouterr().out
    assert "4 matches of 1 seat," in shown
    for text in (shown, Path("solo-report/report.md").read_text().partition("## Seats")[0]):
        assert "mean return" in text
        assert not {"won", "lost", "score"} & set(text.split())


def test_long_matches_are_opened_from_snapshots_made_while_they_were_played(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("cup.toml").write_text(CUP.replace("tictactoe", "openspiel:pig").replace("= 2", "= 1"))
    seats = ["--seat", "random", "--seat", "random"]
    play = ["play", "openspiel:pig", *seats, "--seed", "1", "--log", "one.db", "--json"]
    for command, matches in ((["tournament", "cup.toml"], 2), (play, 1)):
        monkeypatch.setenv("OSTINATO_HOME", command[0])
        assert run(command) == 0
        assert len(list(Path(command[0], "snapshots").iterdir())) == matches
