"""Make all that training reads: a tokenizer, and records to learn from and to be tested with.

    python -m tools.nano.generate --out FOLDER [--scale 1.0] [--seed 1] [--workers 2]

The same seed and scale give the same bytes, whatever the number of workers. Nothing here is learned
from by accident: positions are told apart by `games.solved.judged.is_test`.
"""

from __future__ import annotations

import argparse
import hashlib
import multiprocessing
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from engine.tokens import PREFIX, SUFFIX, Encoder, schema_pieces
from games.registry import load_game
from games.solved import Position
from runtime.exam.positions import (
    connect_four_positions,
    expedition_positions,
    kuhn_positions,
    tictactoe_positions,
)
from tools.game_texts import game_texts
from tools.nano.dataset import TEST, TOKENIZER, TRAIN, Array, RecordData, Writer, key_bits
from tools.nano.plain import plain_texts
from tools.nano.records import GAMES, KINDS, WINDOW, learned, tested
from tools.small_tokenizer import write_tokenizer

ENTRIES: Final = 4096
_PART: Final = 1000  # records of one job; parts are drawn apart, so that workers change nothing
_PLAIN_TOKENIZED: Final = 3000


class Source(NamedTuple):
    """One kind of text.

    Attributes:
        records: To learn from, at scale 1.
        tests: To be tested with.
        each: Positions of one map.
    """

    name: str
    records: int
    tests: int
    rules: str = ""
    size: str = ""
    each: int = 0


SOURCES: Final = (
    Source("tictactoe", 32_000, 1200),
    Source("kuhn", 4_000, 0),
    Source("connect_four", 80_000, 1200),
    Source("expedition", 16_000, 600, "none", "standard", 20),
    Source("expedition", 4_000, 200, "none", "small", 32),
    Source("expedition", 3_000, 200, "short", "standard", 30),
    Source("expedition", 2_000, 100, "full", "standard", 40),
    Source("plain", 12_000, 0),
)


def main() -> None:
    """Generate and say how long it took."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--scale", type=float, default=1.0, help="of the numbers of records")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", default="", help="sources, with commas between; all if empty")
    arguments = parser.parse_args()
    generate(
        arguments.out,
        scale=arguments.scale,
        seed=arguments.seed,
        workers=arguments.workers,
        only=arguments.only,
    )


def generate(out: Path, *, scale: float, seed: int, workers: int, only: str = "") -> None:
    """Write the tokenizer's folder and two data sets.

    Args:
        out: Where to.
        scale: Of the numbers of records; a job has a thousand at most, and one at least.
        seed: Another one gives other records, and the same split.
        workers: Processes.
        only: Names of sources with commas between; all if empty.
    """
    started = time.monotonic()
    folder = out / TOKENIZER
    folder.mkdir(parents=True, exist_ok=True)
    write_tokenizer(folder, _tokenizer_texts(), window=WINDOW, entries=ENTRIES)
    encoder = Encoder(folder)
    starts = _starts(encoder)
    writers = [Writer(starts, list(GAMES), list(KINDS)) for _ in range(2)]
    wanted = [each for each in SOURCES if not only or each.name in only.split(",")]
    jobs = [job for each in wanted for job in _jobs(each, scale, seed, folder)]
    with _mapped(workers) as mapped:
        for number, (test, records) in enumerate(mapped(_run, jobs), start=1):
            for record in records:
                writers[test].add(record)
            _tell(f"{number} of {len(jobs)} parts, {writers[0].count:,} records")
    about = {"seed": seed, "scale": scale, "only": only, "tokenizer": _digest(folder)}
    for writer, name in zip(writers, (TRAIN, TEST), strict=True):
        writer.save(out / name, about)
    _tell("")
    print(
        f"{writers[0].count:,} records to learn from, {writers[1].count:,} to be tested with, "
        f"{(out / TRAIN).stat().st_size / 1e6:.1f} MB, {time.monotonic() - started:.0f} s: {out}"
    )


@contextmanager
def _mapped(workers: int) -> Iterator[Callable[..., Iterable[tuple[bool, list[RecordData]]]]]:
    """Give `map`, or one that other processes work for; its results come in order."""
    if workers == 1:
        yield map
        return
    pool = multiprocessing.get_context("spawn").Pool(workers)
    try:
        yield pool.imap
        pool.close()
    except BaseException:
        pool.terminate()
        raise
    finally:
        pool.join()


class Job(NamedTuple):
    """One part of a source: so many records, to learn from or to be tested with."""

    source: Source
    seed: str
    records: int
    test: bool
    tokenizer: Path


def _jobs(source: Source, scale: float, seed: int, tokenizer: Path) -> Iterator[Job]:
    for test, full in ((False, source.records), (True, source.tests)):
        records = max(1, round(full * scale)) if full else 0
        parts = -(-records // _PART)
        for part in range(parts):
            yield Job(
                source=source,
                seed=f"{seed} {source.name} {source.rules} {source.size} {test} {part}",
                records=len(range(part, records, parts)),
                test=test,
                tokenizer=tokenizer,
            )


def _run(job: Job) -> tuple[bool, list[RecordData]]:
    encoder, source = Encoder(job.tokenizer), random.Random(job.seed)
    if job.source.name == "plain":
        texts = islice(plain_texts(source), job.records)
        return False, [_plain(encoder, text) for text in texts]
    make = tested if job.test else learned
    positions = _positions(job.source, source, test=job.test)
    records = (record for position in positions for record in make(position, encoder, source))
    return job.test, list(islice(records, job.records))


def _positions(kind: Source, source: random.Random, *, test: bool) -> Iterator[Position]:
    if kind.name == "tictactoe":
        return tictactoe_positions(source, test=test)
    if kind.name == "kuhn":
        return kuhn_positions(source)
    if kind.name == "connect_four":
        return connect_four_positions(source, test=test)
    return expedition_positions(source, rules=kind.rules, size=kind.size, each=kind.each, test=test)


def _plain(encoder: Encoder, text: str) -> RecordData:
    ids = np.array(encoder.ids(text), dtype=np.uint16)
    nothing = np.zeros(0, dtype=np.uint16)
    return RecordData(ids, nothing, len(GAMES), key_bits(f"plain {text}"), [])


def _tokenizer_texts() -> Iterator[str]:
    source = random.Random("1 tokenizer")  # the same for all seeds: a run may learn from several
    yield PREFIX + SUFFIX
    yield from game_texts()
    yield from islice(plain_texts(source), _PLAIN_TOKENIZED)
    for positions in (tictactoe_positions(source, test=False), kuhn_positions(source)):
        for position in islice(positions, 400):
            yield from _pieces(position)


def _pieces(position: Position) -> Iterator[str]:
    from engine.records import ask_from_questions

    questions = [judged.question for judged in position.judged]
    ask = ask_from_questions(state=position.view.private, questions=questions)
    yield ask.state
    yield from (piece.text for piece in schema_pieces(ask.fields))


def _starts(encoder: Encoder) -> list[Array]:
    """Give the ids of the starts that many records share, all but the last few of a rulebook."""
    prefix = np.array(encoder.ids(PREFIX), dtype=np.uint16)
    starts = [prefix]
    for rules in ("short", "full"):
        public = load_game(f"expedition(rules={rules})").start(seats=1, seed=0).view(0).public
        book = encoder.ids(public[: public.index("# This journey")])[:-8]
        starts.append(np.concatenate([prefix, np.array(book, dtype=np.uint16)]))
    return starts


def _digest(folder: Path) -> str:
    return hashlib.sha256((folder / "tokenizer.json").read_bytes()).hexdigest()


def _tell(text: Any) -> None:
    if sys.stdout.isatty():
        print(f"\r\x1b[K{text}", end="", flush=True)


if __name__ == "__main__":
    main()
