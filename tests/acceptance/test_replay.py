"""`ostinato replay`, `export` and `import`: the same to the byte, or the exact difference."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.command import Command, Done

Here = Callable[..., Done]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory) -> Path:
    """A log of three matches with decisions."""
    command = Command(tmp_path_factory.mktemp("recorded"))
    flags = ("--model", "mock:seed=1", "--matches", 3, "--seed", 1, "--log", "games.db")
    assert command("play", "tictactoe", "--seat", "decision", "--seat", "random", *flags).code == 0
    return command.folder / "games.db"


@pytest.fixture
def log(recorded: Path, tmp_path: Path) -> Path:
    copy = tmp_path / "games.db"
    copy.write_bytes(recorded.read_bytes())
    return copy


def matches_of(log: Path) -> list[tuple[str, int]]:
    with closing(sqlite3.connect(log)) as database:
        return database.execute("SELECT match, next_version FROM matches ORDER BY id").fetchall()


def alter(log: Path, old: bytes, new: bytes) -> tuple[str, int]:
    """Replace bytes in the first event that has them; give its match and version."""
    find = (
        "SELECT events.position, matches.match, version, payload FROM events"
        " JOIN matches ON matches.id = events.match WHERE instr(payload, ?) ORDER BY position"
    )
    with closing(sqlite3.connect(log)) as database, database:
        position, match, version, payload = database.execute(find, (old,)).fetchone()
        database.execute(
            "UPDATE events SET payload = ? WHERE position = ?",
            (payload.replace(old, new, 1), position),
        )
    return match, version


def test_all_is_identical(ostinato: Command, log: Path):
    done = ostinato("replay", log)
    assert done.code == 0
    assert "3 matches" in done.stdout
    assert "identical" in done.stdout

    report = ostinato("replay", log, "--json").document
    fields = {"identical", "matches", "turns", "unfinished", "sessions", "differences"}
    assert set(report) == fields
    assert (report["identical"], report["matches"], report["differences"]) == (True, 3, [])


def test_a_changed_byte_is_named(ostinato: Command, log: Path):
    match, version = alter(log, b"turn_taken", b"turn_takem")
    done = ostinato("replay", log, "--json")
    assert done.code == 4
    report = done.document
    assert (report["identical"], report["matches"]) == (False, 3)
    (difference,) = report["differences"]
    assert set(difference) == {"match", "version", "field", "expected", "found"}
    assert (difference["match"], difference["version"]) == (match, version)
    assert difference["field"] == "log"

    done = ostinato("replay", log)
    assert done.code == 4
    assert "1 differences" in done.stdout


def test_one_match(here: Here, log: Path):
    damaged, _ = alter(log, b"turn_taken", b"turn_takem")
    others = [match for match, _ in matches_of(log) if match != damaged]
    done = here("replay", log, "--match", others[0], "--json")
    assert (done.code, done.document["matches"]) == (0, 1)
    assert here("replay", log, "--match", damaged).code == 4
    assert "nobody" in here("replay", log, "--match", "nobody").refused("store/unknown_match")


@pytest.mark.parametrize("name", ["games.jsonl", "games.jsonl.zst"])
def test_there_and_back(here: Here, log: Path, name: str):
    done = here("export", log, name, "--json")
    assert done.document == {"exported": 3, "to": name}
    assert here("replay", name, "--json").document["matches"] == 3
    assert here("import", name, "back.db", "--json").document["imported"] == 3
    assert matches_of(log.parent / "back.db") == matches_of(log)
    assert here("import", name, "back.db", "--json").document["imported"] == 0
    here("export", "back.db", f"again-{name}")
    assert (log.parent / f"again-{name}").read_bytes() == (log.parent / name).read_bytes()


def test_one_match_is_exported(here: Here, log: Path):
    match = matches_of(log)[1][0]
    assert here("export", log, "one.jsonl", "--match", match, "--json").document == {
        "exported": 1,
        "to": "one.jsonl",
    }
    assert here("replay", "one.jsonl", "--match", match, "--json").document["matches"] == 1
    here("export", log, "no.jsonl", "--match", "nobody").refused("store/unknown_match")
    assert not (log.parent / "no.jsonl").exists()


@pytest.mark.parametrize("damage", ["changed", "cut", "cut-zst", "text", "nothing"])
def test_damaged_files_change_no_log(here: Here, log: Path, tmp_path: Path, damage: str):
    name = "f.jsonl.zst" if damage == "cut-zst" else "f.jsonl"
    assert here("export", "games.db", name).code == 0
    file = tmp_path / name
    data = file.read_bytes()
    if damage == "changed":
        file.write_bytes(data.replace(b'"turn_taken"', b'"turn_tAken"', 1))
    elif damage.startswith("cut"):
        file.write_bytes(data[: len(data) * 2 // 3])
    else:
        file.write_bytes(b"" if damage == "nothing" else b"once upon a time\n" * 9)

    done = here("import", name, "new.db")
    assert done.code == 1
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert name in done.stderr
    assert not (tmp_path / "new.db").exists()
    assert here("replay", name).code in (1, 4)
