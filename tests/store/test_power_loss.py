"""What a power cut may leave of the files: what was acknowledged is in the log, which is whole.

Writes and syncs of a process that appends are recorded with strace. From that, files are made as
they may be after a cut: what was synced, and of what was not any part, writes torn at sectors.
"""

from __future__ import annotations

import random
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from store.sqlite import open_log

APPENDER = Path(__file__).with_name("appender.py")
SECTOR = 512
CALL = re.compile(
    r"\d+ +(?P<call>pwrite64|fdatasync|fsync|ftruncate|write)\((?P<fd>\d+)<(?P<path>[^>]*)>"
    r'(?:, (?:"(?P<data>[^"]*)", \d+(?:, )?)?(?P<at>\d+)?)?(?P<rest>.*)'
)
RESUMED = re.compile(r"(?P<pid>\d+) +<\.\.\. (?:fdatasync|fsync) resumed>")


class Write(NamedTuple):
    """Bytes at a place of a file; None cuts the file there."""

    at: int
    data: bytes | None


class Disk:
    """The files of a log as the disk has them for certain, and what it may have besides."""

    def __init__(self, folder: Path) -> None:
        self.synced = {file.name: bytearray(file.read_bytes()) for file in folder.iterdir()}
        self.pending: dict[str, list[Write]] = {}

    def sync(self, name: str) -> None:
        for write in self.pending.pop(name, []):
            _apply(self.synced.setdefault(name, bytearray()), write)

    def cut(self, folder: Path, source: random.Random) -> None:
        """Put into a folder what a power cut now may leave."""
        folder.mkdir()
        for name in {*self.synced, *self.pending}:
            if not name.endswith((".db", "-wal")):
                continue  # the index of the WAL is made anew, the lock holds nothing
            content = bytearray(self.synced.get(name, b""))
            for write in self.pending.get(name, []):
                if source.random() < 0.5:
                    _apply(content, _torn(write, source))
            (folder / name).write_bytes(content)


def _apply(content: bytearray, write: Write) -> None:
    if write.data is None:
        del content[write.at :]
        return
    content.extend(bytes(max(0, write.at - len(content))))
    content[write.at : write.at + len(write.data)] = write.data


def _torn(write: Write, source: random.Random) -> Write:
    if write.data is None or source.random() < 0.5:
        return write
    sectors = -(-len(write.data) // SECTOR)
    return Write(write.at, write.data[: source.randrange(sectors + 1) * SECTOR])


def _text(hexadecimal: str) -> bytes:
    return bytes.fromhex(hexadecimal.replace("\\x", ""))


class Moment(NamedTuple):
    """The disk right before or after a sync, and what had been acknowledged by then."""

    disk: Disk
    acknowledged: dict[str, int]


def moments(disk: Disk, trace: Path) -> Iterator[Moment]:
    """Go through a trace; the same objects each time, as they change."""
    acknowledged: dict[str, int] = {}
    syncing: dict[str, str] = {}
    for line in trace.read_text().splitlines():
        pid = line.split(" ", 1)[0]
        if RESUMED.match(line):
            disk.sync(syncing.pop(pid))
            yield Moment(disk, acknowledged)
        call = CALL.match(line)
        if call is None:
            continue
        name = Path(_text(call["path"]).decode()).name if "\\x" in call["path"] else ""
        if call["call"] == "write" and call["fd"] == "1":
            for said in _text(call["data"]).decode().splitlines():
                match, version = said.split()
                acknowledged[match] = int(version)
        elif call["call"] == "pwrite64":
            disk.pending.setdefault(name, []).append(Write(int(call["at"]), _text(call["data"])))
        elif call["call"] == "ftruncate":
            disk.pending.setdefault(name, []).append(Write(int(call["at"]), None))
        elif call["call"] in ("fdatasync", "fsync"):
            yield Moment(disk, acknowledged)
            if "unfinished" in call["rest"]:
                syncing[pid] = name
            else:
                disk.sync(name)
                yield Moment(disk, acknowledged)


async def check(image: Path, acknowledged: dict[str, int]) -> None:
    """Open the log as the next process does, and read it whole."""
    log = open_log(image / "log.db")
    stored = {recorded[0].match: len(recorded) for recorded in log.scan()}
    assert {one.match: one.next_version for one in log.matches()} == stored
    for match, version in acknowledged.items():
        assert stored.get(match, 0) >= version, (match, version, stored)
    await log.close()


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
@pytest.mark.parametrize(
    ("every", "images"),
    [(10, 1), pytest.param(1, 20, marks=[pytest.mark.long, pytest.mark.timeout(3600)])],
)
async def test_a_power_cut_takes_nothing_that_was_acknowledged(
    tmp_path: Path, every: int, images: int
) -> None:
    folder, trace = tmp_path / "log", tmp_path / "trace"
    folder.mkdir()
    await open_log(folder / "log.db").close()
    disk = Disk(folder)
    calls = "trace=pwrite64,fdatasync,fsync,ftruncate,write"
    strace = ["strace", "-f", "-y", "-xx", "-s", "1000000", "-e", calls, "-o", trace]
    subprocess.run(
        [*strace, sys.executable, APPENDER, "some", folder / "log.db"],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    source = random.Random(1)
    checked = syncs = 0
    most: dict[str, int] = {}
    for number, moment in enumerate(moments(disk, trace)):
        syncs = number // 2
        most = dict(moment.acknowledged)
        if number % every:
            continue
        for _ in range(images):
            image = tmp_path / "image"
            moment.disk.cut(image, source)
            await check(image, moment.acknowledged)
            shutil.rmtree(image)
            checked += 1
    assert most == {f"m{number}": 801 for number in range(8)}
    assert checked > 10
    print(f"{checked} images around {syncs} syncs, nothing acknowledged was lost")
