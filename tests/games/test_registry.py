from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from games import (
    BadGameParameters,
    GamesError,
    UnknownGame,
    UnsupportedGame,
    game_names,
    load_game,
)
from games.registry import BUILT_IN


@pytest.mark.parametrize("name", BUILT_IN)
def test_built_in_games_are_loaded_by_their_id(name: str):
    facts = load_game(name).facts
    assert facts.id == name
    assert load_game(facts.id).facts == facts


def test_parameters_reach_the_game():
    assert load_game("expedition(size=tiny, rules=short)").facts.id == (
        "expedition(rules=short,size=tiny)"
    )
    assert load_game("tictactoe()").facts.id == "tictactoe"


@pytest.mark.parametrize(
    ("game", "kind", "message"),
    [
        ("tictacto", UnknownGame, "no game 'tictacto'; did you mean tictactoe"),
        ("TicTacToe", UnknownGame, "did you mean tictactoe"),
        (
            "chess",
            UnknownGame,
            "known are expedition, holdem, kuhn_poker, tictactoe, or openspiel:NAME",
        ),
        ("textworld:x", UnknownGame, "no library 'textworld'"),
        (
            "tictactoe(size=4)",
            BadGameParameters,
            "takes layout: got an unexpected .* 'size'",
        ),
        (
            "kuhn_poker(players=3)",
            BadGameParameters,
            "takes layout: got an .* 'players'",
        ),
        ("expedition(size=tiny,size=small)", BadGameParameters, "'size=small' is not key=value"),
        ("expedition(tiny)", BadGameParameters, "'tiny' is not key=value"),
        ("expedition(size=tiny", BadGameParameters, "write NAME or NAME\\(key=value,...\\)"),
        ("", BadGameParameters, "'' is not a game's id"),
        ("tic tac toe", BadGameParameters, "'tic tac toe' is not a game's id"),
        ("\ud800", BadGameParameters, "is not a game's id"),
        ("openspiel:go(\ud800=1)", BadGameParameters, "is not a game's id"),
    ],
)
def test_a_wrong_id_is_refused_with_the_way_out(game: str, kind: type[GamesError], message: str):
    with pytest.raises(kind, match=message) as error:
        load_game(game)
    str(error.value).encode()


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed package that brings two games, one of them unusable."""
    (tmp_path / "noughts.py").write_text(
        "from games.tictactoe import TicTacToe\n"
        "def load(**parameters):\n"
        "    assert parameters == {'size': '3'}\n"
        "    return TicTacToe()\n"
    )
    about = tmp_path / "noughts-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: noughts\nVersion: 1\n")
    (about / "entry_points.txt").write_text(
        "[ostinato.games]\nnoughts = noughts:load\nmissing = noughts.gone:load\n"
        "tictactoe = noughts:load\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("package")
def test_installed_packages_add_games():
    assert game_names() == ["expedition", "holdem", "kuhn_poker", "missing", "noughts", "tictactoe"]
    assert load_game("noughts(size=3)").facts.title == "Tic-tac-toe"


@pytest.mark.usefixtures("package")
def test_a_package_does_not_replace_a_built_in_game():
    assert load_game("tictactoe").facts.id == "tictactoe"


@pytest.mark.usefixtures("package")
def test_a_damaged_package_is_named():
    with pytest.raises(UnsupportedGame, match=r"'missing' of noughts\.gone:load"):
        load_game("missing")


def test_importing_games_loads_no_game():
    script = "import sys, games; print([m for m in sys.modules if 'spiel' in m or 'tictac' in m])"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
