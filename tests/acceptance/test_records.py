"""Chess games and poker hands of other programs, in and out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.command import Done

pytest.importorskip("pyspiel", reason="chess needs OpenSpiel")
pytest.importorskip("pokerkit", reason="hold'em needs pokerkit")

Here = Callable[..., Done]

SOUND = '[Event "a"]\n\n1. e4 e5 2. Nf3 1/2-1/2\n'
FAULTY = '[Event "b"]\n\n1. e4 [red]e5 *\n'
HAND = (
    "variant = 'NT'\nantes = [0, 0]\nblinds_or_straddles = [1, 2]\nmin_bet = 2\n"
    "starting_stacks = [50, 50]\nactions = ['d dh p1 AhAs', 'd dh p2 KhKs', 'p2 cbr 6', 'p1 f']\n"
)


def test_games_come_in_replay_and_go_out(here: Here, tmp_path: Path):
    (tmp_path / "cup.pgn").write_text(SOUND)
    (tmp_path / "home.phh").write_text(HAND)
    assert here("import", "cup.pgn", "a.db").stdout == "imported 1 matches to a.db\n"
    assert here("import", "home.phh", "a.db", "--json").document == {
        "imported": 1,
        "present": 0,
        "faults": [],
        "to": "a.db",
    }
    again = here("import", "cup.pgn", "a.db")
    assert again.stdout == "imported 0 matches to a.db (1 were there already)\n"
    assert here("replay", "a.db", "--json").document["identical"] is True
    out = here("export", "a.db", "out.pgn")
    assert out.stdout == "exported 1 matches to out.pgn; 1 of other games left out\n"
    assert "1. e4 e5 2. Nf3 1/2-1/2" in (tmp_path / "out.pgn").read_text()
    assert here("export", "a.db", "hand.txt", "--format", "phh", "--json").document == {
        "exported": 1,
        "to": "hand.txt",
    }
    assert "'p2 cbr 6', 'p1 f'" in (tmp_path / "hand.txt").read_text()
    assert here("export", "a.db", "all.jsonl").stdout == "exported 2 matches to all.jsonl\n"


def test_a_fault_is_shown_and_the_rest_is_imported(here: Here, tmp_path: Path):
    (tmp_path / "cup.pgn").write_text(f"{SOUND}\n{FAULTY}")
    done = here("import", "cup.pgn", "a.db")
    assert done.code == 3
    assert done.stderr == ""
    assert "imported 1 matches to a.db" in done.stdout
    assert "'[' is no part of movetext" in done.stdout
    done = here("import", "cup.pgn", "a.db", "--json")
    assert done.code == 3
    assert (done.document["imported"], done.document["present"]) == (0, 1)
    assert done.document["faults"] == [
        {
            "match": 2,
            "place": "line 7 after 1 half-moves",
            "what": "'[' is no part of movetext",
        }
    ]
    assert here("replay", "a.db", "--json").document["matches"] == 1


def test_many_faults_are_counted(here: Here, tmp_path: Path):
    (tmp_path / "cup.pgn").write_text(FAULTY * 25)
    done = here("import", "cup.pgn", "a.db")
    assert "imported 0 matches" in done.stdout
    assert "and 5 more; --json lists all" in done.stdout


@pytest.mark.parametrize(
    ("code", "names", "arguments"),
    [
        ("store/unavailable", "none.pgn", ("import", "none.pgn", "a.db")),
        ("store/unavailable", "none.phh", ("import", "none.phh", "a.db")),
        ("store/unavailable", "none.db", ("export", "none.db", "a.pgn")),
        ("store/bad_export", "none.pgn.zst", ("import", "none.pgn.zst", "a.db")),
    ],
)
def test_files_that_cannot_be_read_leave_nothing(
    here: Here, tmp_path: Path, code: str, names: str, arguments: tuple[str, ...]
):
    if code == "store/bad_export":
        (tmp_path / "none.pgn.zst").write_text(SOUND)
    before = {file.name for file in tmp_path.iterdir()}
    assert names in here(*arguments).refused(code)
    assert {file.name for file in tmp_path.iterdir()} <= before | {"a.db", "a.db.lock"}


def test_a_log_without_chess_gives_no_pgn(here: Here, tmp_path: Path):
    play = ("play", "tictactoe", "--seat", "random", "--seat", "random", "--log", "a.db")
    assert here(*play).code == 0
    assert "no match of a game that pgn holds" in here("export", "a.db", "a.pgn").refused(
        "runtime/bad_input"
    )
    assert here("export", "a.db", "a.pgn", "--format", "san").refused("runtime/usage", exit=2)
    assert not (tmp_path / "a.pgn").exists()
