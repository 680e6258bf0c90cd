"""Matches go on and every decision has one outcome, whatever is killed, stopped or cut off."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import anyio
import pytest

from tests.chaos.nemesis import FAULTS, Actors, break_things, check, stage


@pytest.fixture(scope="module")
def actors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Actors]:
    actors = Actors(tmp_path_factory.mktemp("actors"))
    yield actors
    actors.close()


async def run(actors: Actors, folder: Path, seed: int, *, stops_s: float) -> Counter[str]:
    source = random.Random(seed)
    async with stage(actors, folder) as on:
        faults = await break_things(on, source, stops_s=stops_s)
        await on.finish(within_s=60)
        found = await check(on)
    assert faults.total() >= FAULTS
    assert found["DecisionAnswered"] > 0
    return faults + found


@pytest.mark.parametrize("seeds", [range(3), range(3, 6)], ids=str)
async def test_every_decision_has_one_outcome(actors: Actors, tmp_path: Path, seeds: range) -> None:
    async with anyio.create_task_group() as group:  # each of them waits most of the time
        for seed in seeds:
            folder = tmp_path / str(seed)
            folder.mkdir()
            group.start_soon(partial(run, actors, folder, seed, stops_s=0.5))


@pytest.mark.long
@pytest.mark.timeout(7200)
async def test_every_decision_has_one_outcome_in_200_runs(actors: Actors, tmp_path: Path) -> None:
    total: Counter[str] = Counter()
    for seed in range(1000, 1200):
        folder = tmp_path / str(seed)
        folder.mkdir()
        total += await run(actors, folder, seed, stops_s=3.0)
    print("200 runs:", ", ".join(f"{name} {count:,}" for name, count in sorted(total.items())))
