from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from store.errors import BadExport, CorruptLog, LogUnavailable, NewerSchema, UnknownMatch
from store.export import export_matches, import_matches, read_export
from store.log import Stored
from store.memory import MemoryLog
from store.sqlite import open_log
from store.testing import started, turn, whole_match

NAMES = ["matches.jsonl", "matches.jsonl.zst"]


@pytest.fixture
async def log() -> MemoryLog:
    log = MemoryLog()
    for number in range(3):
        await log.append(f"m{number}", whole_match(4, seed=number), expected=0)
    await log.append("unfinished ü", [started(), turn(0)], expected=0)
    return log


@pytest.mark.parametrize("name", NAMES)
async def test_matches_come_back_as_they_were(log: MemoryLog, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    assert export_matches(log, path) == 4
    assert list(read_export(path)) == list(log.scan())
    there = open_log(tmp_path / "log.db")
    assert await import_matches(there, path) == 4
    assert list(there.scan()) == list(log.scan())
    assert list(there.matches()) == list(log.matches())
    again = tmp_path / f"again-{name}"
    export_matches(there, again)
    assert again.read_bytes() == path.read_bytes()
    await there.close()
    assert {file.name for file in tmp_path.iterdir()} == {
        *(path.name, again.name, "log.db", "log.db.lock")
    }


async def test_the_hash_is_made_as_the_description_of_the_format_says(
    log: MemoryLog, tmp_path: Path
) -> None:
    """Reckoned from the file's bytes alone, by none of our code."""
    path = tmp_path / "matches.jsonl"
    export_matches(log, path)
    first, *lines = path.read_bytes().splitlines()
    header = json.loads(first)
    assert (header["format"], header["version"]) == ("ostinato-matches", 1)
    assert sum(header["matches"].values()) == len(lines)
    before: dict[str, bytes] = {}
    for line in lines:
        event = json.loads(line)
        payload = line.split(b'"payload":', 1)[1][:-1]
        name = event["match"].encode()
        numbers = (event["version"], event["schema"], event["at_ms"], len(name))
        digest = hashlib.sha256(before.get(event["match"], bytes(32)))
        for number in numbers:
            digest.update(number.to_bytes(8, "big", signed=True))
        digest.update(name + payload)
        before[event["match"]] = digest.digest()
        assert event["hash"] == digest.hexdigest()


async def test_some_matches_can_be_chosen(log: MemoryLog, tmp_path: Path) -> None:
    path = tmp_path / "some.jsonl"
    assert export_matches(log, path, ["m2", "m0"]) == 2
    assert [records[0].match for records in read_export(path)] == ["m2", "m0"]
    with pytest.raises(UnknownMatch, match="m9"):
        export_matches(log, path, ["m0", "m9"])
    assert len(list(read_export(path))) == 2


async def test_an_empty_log_gives_an_empty_file(tmp_path: Path) -> None:
    assert export_matches(MemoryLog(), tmp_path / "none.jsonl") == 0
    assert list(read_export(tmp_path / "none.jsonl")) == []


async def test_the_same_match_again_changes_nothing(log: MemoryLog, tmp_path: Path) -> None:
    path = tmp_path / "matches.jsonl"
    export_matches(log, path)
    before = list(log.scan())
    assert await import_matches(log, path) == 0
    assert list(log.scan()) == before


async def test_a_match_that_went_on_is_continued(log: MemoryLog, tmp_path: Path) -> None:
    there = MemoryLog()
    export_matches(log, tmp_path / "early.jsonl")
    await import_matches(there, tmp_path / "early.jsonl")
    await log.append("unfinished ü", [turn(1)], expected=2)
    export_matches(log, tmp_path / "late.jsonl")
    assert await import_matches(there, tmp_path / "late.jsonl") == 1
    assert list(there.scan()) == list(log.scan())
    assert await import_matches(there, tmp_path / "early.jsonl") == 0


async def test_another_match_of_the_same_id_is_refused(log: MemoryLog, tmp_path: Path) -> None:
    path = tmp_path / "matches.jsonl"
    export_matches(log, path)
    there = MemoryLog()
    await there.append("m2", whole_match(4, seed=99), expected=0)
    with pytest.raises(BadExport, match="another match 'm2'"):
        await import_matches(there, path)
    assert [one.match for one in there.matches()] == ["m2"]


Edit = Callable[[list[bytes]], list[bytes]]


def replaced(line: int, old: bytes, new: bytes) -> Edit:
    def edit(lines: list[bytes]) -> list[bytes]:
        assert old in lines[line - 1]
        return [*lines[: line - 1], lines[line - 1].replace(old, new, 1), *lines[line:]]

    return edit


def without(line: int) -> Edit:
    return lambda lines: lines[: line - 1] + lines[line:]


# Line 1 is the header; m0 has lines 2 to 7, m1 8 to 13, m2 14 to 19, the unfinished one 20 and 21.
NOT_WHOLE: dict[str, tuple[Edit, str, int, int]] = {
    "altered": (replaced(10, b"square 1", b"square 2"), "m1", 2, 10),
    "other time": (replaced(10, b'"at_ms":1', b'"at_ms":2'), "m1", 2, 10),
    "lost": (without(10), "m1", 2, 10),
    "lost last": (without(13), "m1", 5, 13),
    "swapped": (lambda lines: [*lines[:9], lines[10], lines[9], *lines[11:]], "m1", 2, 10),
    "cut": (lambda lines: lines[:20], "unfinished ü", 1, 21),
    "only a header": (lambda lines: lines[:1], "m0", 0, 2),
    "fewer than told": (replaced(1, b'"m1":6', b'"m1":7'), "m1", 6, 14),
    "name of another": (replaced(10, b'"m1"', b'"m2"'), "m1", 2, 10),
    "not an event": (replaced(10, b'"turn_taken"', b'"turn_tooken"'), "m1", 2, 10),
}


@pytest.mark.parametrize(("edit", "match", "version", "line"), NOT_WHOLE.values(), ids=NOT_WHOLE)
@pytest.mark.parametrize("name", NAMES)
async def test_a_damaged_match_is_named_and_nothing_is_imported(
    log: MemoryLog, tmp_path: Path, name: str, edit: Edit, match: str, version: int, line: int
) -> None:
    path = edited(log, tmp_path / name, edit)
    there = MemoryLog()
    with pytest.raises(CorruptLog) as damage:
        list(read_export(path))
    assert (damage.value.match, damage.value.version) == (match, version)
    assert f"line {line}" in str(damage.value)
    with pytest.raises(CorruptLog):
        await import_matches(there, path)
    assert list(there.matches()) == []


BAD: dict[str, tuple[Edit, str]] = {
    "empty": (lambda _: [], "line 1"),
    "another format": (replaced(1, b"ostinato-matches", b"chess"), "line 1"),
    "no match": (replaced(1, b'"m1":6', b'"m1":0'), "line 1"),
    "nested header": (replaced(1, b'"m1":6', b'"m1":' + b"[" * 9999), "line 1: not a file"),
    "nested event": (replaced(10, b'"action":', b'"x":' + b"[" * 9999), "line 10: not an event"),
    "half a line": (lambda lines: [*lines[:9], lines[9][:50]], "line 10: not an event"),
    "not JSON": (replaced(10, b"{", b"["), "line 10: not an event"),
    "not hexadecimal": (replaced(10, b'"hash":"', b'"hash":"g'), "line 10: not an event"),
    "not UTF-8": (replaced(10, b"square", b"squ\xffre"), "line 10"),
    "more than told": (lambda lines: [*lines, lines[-1]], "line 22: more lines"),
}


@pytest.mark.parametrize(("edit", "message"), BAD.values(), ids=BAD)
async def test_a_file_of_something_else_is_refused_by_line(
    log: MemoryLog, tmp_path: Path, edit: Edit, message: str
) -> None:
    path = edited(log, tmp_path / "bad.jsonl", edit)
    with pytest.raises((BadExport, CorruptLog), match=message):
        list(read_export(path))


async def test_a_newer_file_asks_for_an_upgrade(log: MemoryLog, tmp_path: Path) -> None:
    path = edited(
        log, tmp_path / "new.jsonl", replaced(1, b'"version":1,"matches":', b'"version":2,"games":')
    )
    with pytest.raises(NewerSchema, match="upgrade"):
        list(read_export(path))


async def test_a_compressed_file_that_is_not_one_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "matches.jsonl.zst"
    path.write_bytes(b'{"format":"ostinato-matches"}\n')
    with pytest.raises(BadExport, match="not compressed"):
        list(read_export(path))


async def test_a_cut_compressed_file_loses_nothing_unnoticed(
    log: MemoryLog, tmp_path: Path
) -> None:
    path = tmp_path / "matches.jsonl.zst"
    export_matches(log, path)
    whole, expected = path.read_bytes(), list(log.scan())
    noticed = 0
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        try:
            assert list(read_export(path)) == expected  # the frame's last bytes hold no data
        except (BadExport, CorruptLog):
            noticed += 1
    assert noticed > 0.9 * len(whole)


async def test_files_that_cannot_be_reached_are_named(log: MemoryLog, tmp_path: Path) -> None:
    with pytest.raises(LogUnavailable, match=r"none\.jsonl cannot be read"):
        list(read_export(tmp_path / "none.jsonl"))
    with pytest.raises(LogUnavailable, match=r"out\.jsonl cannot be written"):
        export_matches(log, tmp_path / "nowhere" / "out.jsonl")
    with pytest.raises(BadExport, match=r"named \.jsonl"):
        export_matches(log, tmp_path / "log.db")
    assert list(tmp_path.iterdir()) == []


async def test_a_damaged_log_leaves_the_old_file_alone(log: MemoryLog, tmp_path: Path) -> None:
    path = tmp_path / "matches.jsonl"
    export_matches(log, path, ["m0"])
    before = path.read_bytes()

    class Damaged(MemoryLog):
        def stored(self, match: str) -> list[Stored]:
            raise CorruptLog(match, 3, "altered")

    damaged = Damaged()
    await damaged.append("m", whole_match(), expected=0)
    with pytest.raises(CorruptLog):
        export_matches(damaged, path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def edited(log: MemoryLog, path: Path, edit: Edit) -> Path:
    """Export a log and change the lines of the file."""
    plain = path.with_name("plain.jsonl")
    export_matches(log, plain)
    data = b"".join(edit(plain.read_bytes().splitlines(keepends=True)))
    plain.unlink()
    path.write_bytes(zstandard.compress(data) if path.suffix == ".zst" else data)
    return path
