from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from engine.errors import NoWorker
from games import load_game
from games.registry import BUILT_IN
from runtime.errors import ReplayDiffers
from runtime.play import Run
from runtime.replay import Difference, refold, replay_file, replay_match
from runtime.table import Terms
from store.errors import BadExport, LogUnavailable, UnknownMatch
from store.events import ActionRefused, Event, MatchStarted
from store.export import export_matches, read_export
from store.log import Recorded
from store.memory import MemoryLog
from store.sqlite import open_log
from tests.support.engines import DirectEngine, FailingEngine
from tests.support.matches import MATCH, events_of, play_one, seat
from tests.support.toys import Diary, Grid

REPLAYS = Path(__file__).parents[2] / "replays"
RECORDED = sorted(REPLAYS.glob("*.jsonl"))
FAILING = sorted((REPLAYS / "must_fail").glob("*.jsonl"))
LIBRARIES = {
    "connect_four": "pyspiel",
    "holdem": "pokerkit",
    "imported_chess": "pyspiel",
    "imported_hand": "pokerkit",
}
TICTACTOE = load_game("tictactoe")


@pytest.mark.parametrize("file", RECORDED, ids=lambda file: file.stem)
async def test_recorded_match_replays(file: Path) -> None:
    if file.stem in LIBRARIES:
        pytest.importorskip(LIBRARIES[file.stem])
    report = await replay_file(file)
    assert report.differences == ()
    assert (report.matches, report.unfinished) == (1, 0)
    assert report.turns > 0


@pytest.mark.parametrize("file", FAILING, ids=lambda file: file.stem)
async def test_recorded_match_fails_where_it_must(file: Path) -> None:
    expected = msgspec.json.decode(
        file.with_suffix(".differences.json").read_bytes(), type=tuple[Difference, ...]
    )
    report = await replay_file(file)
    assert report.differences == expected
    assert expected


def test_every_game_that_ships_has_a_recorded_match() -> None:
    starts = [next(read_export(file))[0].event for file in RECORDED]
    games = {start.game.partition("(")[0] for start in starts if isinstance(start, MatchStarted)}
    assert {*BUILT_IN, "openspiel:connect_four"} <= games
    assert {file.stem for file in FAILING} == {"changed_rule", "changed_text", "lost_event"}


def test_replay_is_the_same_under_another_hash_seed() -> None:
    code = (
        "import sys\n"
        "from store.export import read_export\n"
        "from runtime.replay import replay_match\n"
        "for f in sys.argv[1:]: assert not replay_match(next(read_export(f))).differences, f"
    )
    files = [str(file) for file in RECORDED if file.stem not in LIBRARIES]
    for hash_seed in ("1", "2"):
        subprocess.run(
            [sys.executable, "-c", code, *files],
            env={"PYTHONHASHSEED": hash_seed},
            cwd=REPLAYS.parent,
            check=True,
        )


def tampered(log: MemoryLog, change: Callable[[list[Event]], None]) -> list[Recorded]:
    """Give a match's events after a change to their list, numbered anew."""
    events = events_of(log)
    change(events)
    return [
        Recorded(position=version + 1, match=MATCH, version=version, at_ms=0, hash=b"", event=event)
        for version, event in enumerate(events)
    ]


def setting(version: int, **fields: Any) -> Callable[[list[Event]], None]:
    def change(events: list[Event]) -> None:
        events[version] = msgspec.structs.replace(events[version], **fields)

    return change


def index_of(log: MemoryLog, tag: str, *, nth: int = 0, **fields: Any) -> int:
    """Give the version of an event of a type with these values."""
    found = [
        version
        for version, event in enumerate(events_of(log))
        if event.__struct_config__.tag == tag
        and all(getattr(event, name) == value for name, value in fields.items())
    ]
    return found[nth]


def played(game: str, agents: list[str], seed: int) -> tuple[MemoryLog, int]:
    """Play one match from a test that is not async; give its log and turns."""

    async def play() -> tuple[MemoryLog, int]:
        log, result = await play_one(load_game(game), agents, engine=DirectEngine(), seed=seed)
        return log, result.turns

    return anyio.run(play)


@pytest.fixture(scope="module")
def kuhn() -> MemoryLog:
    log, _ = played("kuhn_poker", ["decision:temperature=1", "decision"], 1)
    return log


@pytest.fixture(scope="module")
def tictactoe() -> MemoryLog:
    agents = ["decision:temperature=1", "random"]
    return next(  # one whose last move is forced
        log
        for log, turns in (played("tictactoe", agents, seed) for seed in range(99))
        if turns == 9
    )


CASES: list[tuple[str, str, dict[str, Any], dict[str, Any], str]] = [
    ("kuhn", "match_started", {}, {"rules_version": 99}, "rules_version"),
    ("kuhn", "match_started", {}, {"layout_version": 99}, "layout_version"),
    ("kuhn", "match_started", {}, {"state_hash": "0" * 64}, "state_hash"),
    ("kuhn", "match_started", {}, {"views": ("0" * 64,) * 2}, "views[0]"),
    ("kuhn", "match_started", {}, {"views": ()}, "views[1]"),
    ("kuhn", "chance_drawn", {}, {"draw": 0.5}, "draw"),
    ("kuhn", "chance_drawn", {}, {"state_hash": "0" * 64}, "state_hash"),
    ("kuhn", "decision_requested", {}, {"length": 1}, "length"),
    ("kuhn", "decision_requested", {}, {"sha256": "0" * 64}, "sha256"),
    ("kuhn", "decision_requested", {}, {"public_end": 1}, "public_end"),
    ("kuhn", "decision_requested", {}, {"decision": "m-1-77"}, "decision"),
    ("kuhn", "decision_requested", {}, {"seat": 1}, "seat"),
    ("kuhn", "decision_requested", {}, {"part": 1}, "part"),
    ("kuhn", "decision_requested", {}, {"form": "joint"}, "length"),
    ("kuhn", "decision_requested", {}, {"draw": 0.5}, "draw"),
    ("kuhn", "decision_answered", {}, {"decision": "m-1-77"}, "decision"),
    ("kuhn", "decision_answered", {}, {"answers": ()}, "answers"),
    ("kuhn", "turn_taken", {"how": "decision"}, {"draw": 0.5}, "draw"),
    ("kuhn", "turn_taken", {"how": "decision"}, {"decision": "m-1-77"}, "decision"),
    ("kuhn", "turn_taken", {}, {"action": "fold"}, "action"),
    ("kuhn", "turn_taken", {}, {"seat": 1}, "seat"),
    ("kuhn", "turn_taken", {}, {"how": "forced"}, "how"),
    ("kuhn", "match_ended", {}, {"returns": (9.0, -9.0)}, "returns"),
    ("kuhn", "match_ended", {}, {"end": "truncated"}, "end"),
    ("tictactoe", "turn_taken", {"how": "agent"}, {"draw": 0.5}, "draw"),
    ("tictactoe", "turn_taken", {"how": "forced"}, {"state_hash": "0" * 64}, "state_hash"),
    ("tictactoe", "turn_taken", {"how": "forced"}, {"views": ("0" * 64,) * 2}, "views[0]"),
]


@pytest.mark.parametrize(
    ("name", "tag", "which", "fields", "field"),
    CASES,
    ids=[f"{case[1]}-{case[4]}-{number}" for number, case in enumerate(CASES)],
)
def test_each_altered_field_is_found_where_it_is(
    request: pytest.FixtureRequest,
    name: str,
    tag: str,
    which: dict[str, Any],
    fields: dict[str, Any],
    field: str,
) -> None:
    log = request.getfixturevalue(name)
    version = index_of(log, tag, **which)
    differences = replay_match(tampered(log, setting(version, **fields))).differences
    assert {difference.version for difference in differences} == {version}
    assert field in {difference.field for difference in differences}


def test_another_outcome_or_action_is_found(kuhn: MemoryLog, tictactoe: MemoryLog) -> None:
    version = index_of(kuhn, "chance_drawn")
    dealt = events_of(kuhn)[version].outcome  # pyright: ignore[reportAttributeAccessIssue]
    other = next(card for card in ("Jack", "Queen", "King") if card != dealt)
    differences = replay_match(tampered(kuhn, setting(version, outcome=other))).differences
    assert differences[0] == Difference(
        match=MATCH, version=version, field="outcome", expected=other, found=dealt
    )
    version = index_of(tictactoe, "turn_taken", how="agent")
    state: Any = TICTACTOE.start(seats=2, seed=1)
    first = events_of(tictactoe)[index_of(tictactoe, "turn_taken")]
    legal = state.apply(first.action).options()  # pyright: ignore[reportAttributeAccessIssue]
    taken = events_of(tictactoe)[version].action  # pyright: ignore[reportAttributeAccessIssue]
    other = next(option.id for option in legal if option.id != taken)
    differences = replay_match(tampered(tictactoe, setting(version, action=other))).differences
    assert ("action", other, taken) in {(d.field, d.expected, d.found) for d in differences}


def test_altered_probabilities_no_longer_lead_to_the_action(tictactoe: MemoryLog) -> None:
    version = index_of(tictactoe, "decision_answered")
    event: Any = events_of(tictactoe)[version]
    [answer] = event.answers
    turn: Any = events_of(tictactoe)[version + 1]
    asked: Any = events_of(tictactoe)[version - 1]
    chosen = [option.id for option in asked.questions[0].options].index(turn.action)
    probabilities = [0.0] * len(answer.probabilities)
    probabilities[chosen - 1] = 1.0
    answer = msgspec.structs.replace(answer, probabilities=tuple(probabilities))
    [difference] = replay_match(
        tampered(tictactoe, setting(version, answers=(answer,)))
    ).differences
    assert (difference.version, difference.field) == (version + 1, "action")


def test_altered_question_is_shown(kuhn: MemoryLog) -> None:
    version = index_of(kuhn, "decision_requested")
    event: Any = events_of(kuhn)[version]
    question = msgspec.structs.replace(event.questions[0], instructions="Which?")
    differences = replay_match(tampered(kuhn, setting(version, questions=(question,)))).differences
    fields = {difference.field: difference for difference in differences}
    assert "Which?" in fields["questions"].expected
    assert {"length", "sha256"} <= fields.keys()


def test_every_lost_event_is_found(kuhn: MemoryLog, tictactoe: MemoryLog) -> None:
    for log in (kuhn, tictactoe):
        for lost in range(len(events_of(log)) - 1):  # without its end a match is unfinished
            shorter = tampered(log, lambda events, lost=lost: events.pop(lost) and None)
            assert replay_match(shorter).differences, lost


def test_gap_in_the_versions_is_named(kuhn: MemoryLog) -> None:
    recorded = kuhn.read(MATCH)
    del recorded[4]
    assert replay_match(recorded).differences == (
        Difference(match=MATCH, version=4, field="version", expected="4", found="5"),
    )


def test_every_event_that_comes_twice_is_found(kuhn: MemoryLog) -> None:
    for again in range(len(events_of(kuhn))):
        longer = tampered(kuhn, lambda events, again=again: events.insert(again, events[again]))
        assert replay_match(longer).differences, again


def test_legal_action_recorded_as_refused_is_found(tictactoe: MemoryLog) -> None:
    refused = ActionRefused(seat=0, action="centre", message="no")
    recorded = tampered(tictactoe, lambda events: events.insert(1, refused))
    [difference] = replay_match(recorded).differences
    assert (difference.field, difference.found) == ("action", "centre is legal")


def test_prefix_of_a_match_replays_and_is_unfinished(tictactoe: MemoryLog) -> None:
    recorded = tictactoe.read(MATCH)
    for length in range(1, len(recorded)):
        replayed = replay_match(recorded[:length])
        assert not replayed.differences
        assert not replayed.ended


async def test_fallbacks_factors_and_epochs_replay_and_their_changes_are_found() -> None:
    engine = FailingEngine(NoWorker("none"), failing=lambda number: number % 3 == 0)
    terms = Terms(fallback="random")
    grid = Grid(turns=4)
    log, _ = await play_one(grid, ["decision:temperature=1"] * 2, engine=engine, terms=terms)
    assert not replay_match(log.read(MATCH), game=grid).differences
    for tag, which, fields, field in [
        ("turn_taken", {"how": "fallback"}, {"draw": 0.5}, "draw"),
        ("decision_requested", {"part": 1}, {"chosen": ("row 0",)}, "chosen"),
        ("decision_requested", {"part": 1}, {"draw": 0.5}, "draw"),
    ]:
        version = index_of(log, tag, **which)
        recorded = tampered(log, setting(version, **fields))
        differences = replay_match(recorded, game=grid).differences
        assert field in {difference.field for difference in differences}
        assert {difference.version for difference in differences} == {version}
    diary = Diary(days=30, width=60, overflow="rebase")
    log, _ = await play_one(diary, ["decision"], engine=DirectEngine(window=200))
    version = index_of(log, "epoch_started")
    recorded = tampered(log, setting(version, epoch=9))
    [difference] = replay_match(recorded, game=diary).differences
    assert (difference.version, difference.field) == (version, "epoch")


async def test_agents_of_others_are_taken_at_their_word() -> None:
    log, _ = await play_one(TICTACTOE, ["random", "random"])
    version = index_of(log, "turn_taken")
    recorded = tampered(log, setting(0, seats=("somebody", "random")))
    recorded[version] = msgspec.structs.replace(
        recorded[version], event=msgspec.structs.replace(recorded[version].event, draw=None)
    )
    assert not replay_match(recorded).differences


def test_refold_raises_the_first_difference(kuhn: MemoryLog) -> None:
    recorded = tampered(kuhn, setting(1, draw=0.5))
    with pytest.raises(ReplayDiffers, match=r"m-1, version 1: draw was 0\.5 and is"):
        refold(recorded, game=load_game("kuhn_poker"))


@pytest.fixture
async def database(tmp_path: Path) -> Path:
    path = tmp_path / "log.db"
    log = open_log(path)
    await Run(log, TICTACTOE, [seat("random"), seat("random")], matches=5, seed=1).play()
    await log.close()
    return path


async def test_logs_and_portable_files_replay_alike(database: Path, tmp_path: Path) -> None:
    log = open_log(database, read_only=True)
    names = [summary.match for summary in log.matches()]
    exports = [tmp_path / "all.jsonl", tmp_path / "all.jsonl.zst"]
    for export in exports:
        export_matches(log, export)
    await log.close()
    seen: list[int] = []
    reports = [await replay_file(path) for path in (database, *exports)]
    assert reports[0].matches == 5
    assert all(report == reports[0] for report in reports)
    await replay_file(database, on_replayed=seen.append)
    assert sum(seen) == 5
    one = [await replay_file(path, match=names[3]) for path in (database, *exports)]
    assert all(report.matches == 1 and report.identical for report in one)
    for path in (database, *exports):
        with pytest.raises(UnknownMatch, match="nobody"):
            await replay_file(path, match="nobody")


async def test_damaged_match_does_not_hide_the_others(database: Path) -> None:
    connection = sqlite3.connect(database)
    connection.execute(
        "update events set payload = cast(replace(payload, 'draw', 'drew') as blob) where match = 2"
    )
    connection.commit()
    connection.close()
    report = await replay_file(database)
    assert report.matches == 5
    [difference] = report.differences
    assert (difference.field, difference.version) == ("log", 1)


async def test_truncated_export_names_where_it_ends(database: Path, tmp_path: Path) -> None:
    log = open_log(database, read_only=True)
    export_matches(log, tmp_path / "all.jsonl")
    await log.close()
    lines = (tmp_path / "all.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "short.jsonl").write_bytes(b"".join(lines[:-3]))
    report = await replay_file(tmp_path / "short.jsonl")
    [difference] = report.differences
    assert difference.field == "log"
    assert "line" in difference.found
    (tmp_path / "no.jsonl").write_bytes(b"{}\n")
    with pytest.raises(BadExport):
        await replay_file(tmp_path / "no.jsonl")
    with pytest.raises(LogUnavailable):
        await replay_file(tmp_path / "missing.db")


def test_rules_that_refuse_the_action_say_so(tictactoe: MemoryLog) -> None:
    version = index_of(tictactoe, "turn_taken", nth=1)
    [difference] = replay_match(tampered(tictactoe, setting(version, action="attic"))).differences
    assert (difference.field, difference.expected) == ("action", "attic")
    assert difference.found.startswith("'attic' is not a legal action here; legal: ")


@pytest.mark.parametrize("name", ["log.db", "all.jsonl.zst"])
async def test_several_processes_give_the_report_of_one(
    database: Path, tmp_path: Path, name: str
) -> None:
    path = tmp_path / name
    if path != database:
        log = open_log(database, read_only=True)
        export_matches(log, path)
        await log.close()
    else:  # one match that cannot be read, among others
        connection = sqlite3.connect(path)
        connection.execute("update events set hash = x'00' where match = 2 and version = 3")
        connection.commit()
        connection.close()
    one, three = [await replay_file(path, processes=count) for count in (1, 3)]
    assert one == three
    assert one.matches == 5
    assert one.identical == (path != database)


async def test_file_that_ends_early_is_one_difference_for_any_number_of_processes(
    database: Path, tmp_path: Path
) -> None:
    log = open_log(database, read_only=True)
    export_matches(log, tmp_path / "all.jsonl")
    await log.close()
    lines = (tmp_path / "all.jsonl").read_bytes().splitlines(keepends=True)
    del lines[20]
    (tmp_path / "short.jsonl").write_bytes(b"".join(lines))
    one, three = [await replay_file(tmp_path / "short.jsonl", processes=count) for count in (1, 3)]
    assert one == three
    [difference] = one.differences
    assert "line 21" in difference.found
