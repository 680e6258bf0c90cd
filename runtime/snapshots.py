"""Folds of long matches kept outside the log, so that any version is opened without the rest.

They are made while a match is played, or else by the first look at it. A snapshot is a cache: it
is used only by the code that made it, and only if the log still has the event that it was made
after, by its hash, and its state and views still have the hashes that this event recorded. Whatever
is wrong with one, the match is folded from an earlier point instead. Python's pickle holds them,
because a state may be any object of a game; they are read from the data folder alone, never from a
match file.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import os
import pickle
import shutil
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import zstandard

from runtime.fold import Fold, state_hash, view_hashes
from runtime.signals import Watch
from store.errors import StoreError
from store.events import ChanceDrawn, EpochStarted, Event, MatchStarted, TurnTaken
from store.log import EventLog, Recorded

EVERY = 64
"""Versions between two snapshots."""

RETRY = 8
"""Versions between two looks whether the log has what waits to be kept."""

MATCHES = 1000
"""Of how many matches they are kept; those of the oldest go."""

MOVED = (MatchStarted, TurnTaken, ChanceDrawn, EpochStarted)
"""Events that record what the state and the views are."""


class Snapshot(NamedTuple):
    """A fold and the hash of its last event."""

    fold: Fold
    hash: bytes

    @property
    def version(self) -> int:
        """That of its last event."""
        return self.fold.next_version - 1

    def fits(self, recorded: Recorded) -> bool:
        """Whether a log's event at this version is the one that it was made after."""
        event, state = recorded.event, self.fold.state
        return (
            recorded.hash == self.hash
            and isinstance(event, MOVED)
            and event.state_hash == state_hash(state)
            and event.views == view_hashes(state, len(self.fold.started.seats))
        )


class Snapshots:
    """The snapshots of one match."""

    def __init__(self, home: Path, first: bytes) -> None:
        """Find them; `first` is the hash of the match's first event."""
        self._home = home / "snapshots"
        self._folder = self._home / first.hex()[:32]

    def before(self, version: int) -> Iterator[Snapshot]:
        """Give those at or before a version that this code made, the latest first."""
        try:
            found = {int(name): name for name in os.listdir(self._folder) if name.isdecimal()}
        except OSError:
            return
        for at in sorted(found, reverse=True):
            snapshot = _load(self._folder / found[at]) if at <= version else None
            if snapshot is not None and snapshot.version == at:
                yield snapshot

    def keep(self, snapshot: Snapshot) -> bool:
        """Keep one; False where it cannot be kept, which is no loss but of time."""
        try:
            data = _dump(snapshot)
            if not self._folder.exists():
                self._folder.mkdir(parents=True)
                self._tidy()
            draft = self._folder / f"{snapshot.version}.{os.getpid()}"
            draft.write_bytes(data)
            draft.replace(self._folder / str(snapshot.version))
        except Exception:  # a game's state may refuse to be pickled in any way
            return False
        return True

    def _tidy(self) -> None:
        with os.scandir(self._home) as folders:
            others = sorted(
                (folder.stat().st_mtime_ns, folder.path)
                for folder in folders
                if folder.name != self._folder.name
            )
        for _, folder in others[: max(0, len(others) + 1 - MATCHES)]:
            shutil.rmtree(folder, ignore_errors=True)


class Keeper:
    """Takes the folds of one match in order and keeps some of them, `EVERY` versions apart."""

    def __init__(self, home: Path, begun: Fold, hash_of: Callable[[int], bytes | None]) -> None:
        """Begin where a match is.

        Args:
            home: The data folder.
            begun: The match so far; a match's start is kept together with what comes later.
            hash_of: Gives the hash of the event at a version, None where the log lacks it yet.
        """
        self._home = home
        self._hash_of = hash_of
        self._start = begun if begun.next_version == 1 else None
        self._taken = begun.next_version - 1
        self._waiting: deque[Fold] = deque()
        self._look_at = 0
        self._works = True

    def see(self, fold: Fold, last: Event) -> None:
        """Take the fold after an event."""
        version = fold.next_version - 1
        if version - self._taken >= EVERY and isinstance(last, MOVED) and self._works:
            if self._start is not None:
                self._waiting.append(self._start)
                self._start = None
            self._waiting.append(fold)
            self._taken = version
        if self._waiting and version >= self._look_at:
            self._look_at = version + RETRY
            self._save()

    def _save(self) -> None:
        first = self._hash_of(0)
        while first is not None and self._waiting:
            digest = self._hash_of(self._waiting[0].next_version - 1)
            if digest is None:
                return
            snapshot = Snapshot(self._waiting.popleft(), digest)
            if not Snapshots(self._home, first).keep(snapshot):
                self._works = False
                self._waiting.clear()


class KeepingWatch:
    """Watches a match that is being played, and keeps snapshots of it."""

    def __init__(self, home: Path, watch: Watch, log: EventLog, fold: Fold) -> None:
        """Begin where the match is."""
        self._watch = watch
        self._log = log
        self._match = fold.match
        self._keeper = Keeper(home, fold, self._hash_of)
        self._last: Event | None = None

    def see(self, fold: Fold, event: Event) -> None:
        """Take one event and the match before it."""
        self._watch.see(fold, event)
        if self._last is not None:
            self._keeper.see(fold, self._last)
        self._last = event

    def _hash_of(self, version: int) -> bytes | None:
        try:
            recorded = self._log.read(self._match, start=version, stop=version + 1)
        except StoreError:
            return None
        return recorded[0].hash if recorded else None


class _Kept(msgspec.Struct, frozen=True, array_like=True):
    """What a file has: the packages of the fold's objects, what they were, and the fold."""

    packages: tuple[str, ...]
    code: str
    hash: bytes
    fold: bytes


class _Loader(pickle.Unpickler):
    """Notes the packages that objects come from."""

    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data))
        self.packages: set[str] = set()

    def find_class(self, module: str, name: str, /) -> Any:
        self.packages.add(module.partition(".")[0])
        return super().find_class(module, name)


def _dump(snapshot: Snapshot) -> bytes:
    data = pickle.dumps(snapshot.fold, protocol=pickle.HIGHEST_PROTOCOL)
    loader = _Loader(data)
    loader.load()
    packages = tuple(sorted(loader.packages - sys.stdlib_module_names))
    kept = _Kept(packages, _code(packages), snapshot.hash, data)
    return zstandard.compress(msgspec.msgpack.encode(kept), 1)


def _load(file: Path) -> Snapshot | None:
    try:
        kept = msgspec.msgpack.decode(zstandard.decompress(file.read_bytes()), type=_Kept)
        if kept.code != _code(kept.packages):
            return None
        return Snapshot(pickle.loads(kept.fold), kept.hash)
    except Exception:  # bytes of any age and origin: whatever they raise, they are no snapshot
        return None


def _code(packages: Iterable[str]) -> str:
    """Give a hash over Python's version and the names, sizes and times of the packages' files."""
    whole = hashlib.sha256(sys.version.encode())
    for package in packages:
        whole.update(_files(package))
    return whole.hexdigest()


@lru_cache(maxsize=256)
def _files(package: str) -> bytes:
    found = importlib.util.find_spec(package)
    if found is None:
        return b""
    folders = found.submodule_search_locations
    stats = (
        [_told(found.origin or "", os.stat(found.origin or ""))]
        if folders is None
        else [told for folder in folders for told in _sources(folder)]
    )
    return repr((package, stats)).encode()


def _sources(folder: str) -> Iterator[tuple[str, int, int]]:
    with os.scandir(folder) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    for entry in entries:
        if entry.name.endswith(".py"):
            yield _told(entry.path, entry.stat())
        elif entry.is_dir() and entry.name != "__pycache__":
            yield from _sources(entry.path)


def _told(path: str, stat: os.stat_result) -> tuple[str, int, int]:
    return path, stat.st_size, stat.st_mtime_ns
