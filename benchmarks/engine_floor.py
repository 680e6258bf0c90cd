"""What a question costs vLLM alone: no adapter, no head, its own scheduler and reuse.

Prompts of as many unread tokens as a question has, behind kept blocks: one and eight at once, and
behind few and many kept tokens. The ratios are those of `ostinato bench engine`.
"""

from __future__ import annotations

import argparse
import random
import time
from functools import partial
from itertools import count, product
from pathlib import Path
from statistics import median
from typing import Any

import anyio
import anyio.to_thread

from benchmarks.machine import machine_line
from engine.bundle import load_bundle
from engine.llm.launch import launch, prepare_environment
from engine.settings import WorkerSettings

QUESTION, MANY = 81, 8


class Asker:
    """Reads prompts that begin alike, and takes the time.

    Args:
        engine: vLLM's, with its own scheduler.
        vocabulary: Number of tokens to choose from.
    """

    def __init__(self, engine: Any, vocabulary: int) -> None:
        self._engine = engine
        self._pick = random.Random(1)
        self._vocabulary = vocabulary
        self._number = count()

    def tokens(self, number: int) -> list[int]:
        """Give tokens that nobody has read."""
        return [self._pick.randrange(self._vocabulary) for _ in range(number)]

    async def read(self, prompt: list[int]) -> int:
        """Read a prompt; give how many of its tokens were kept."""
        from vllm.sampling_params import RequestOutputKind, SamplingParams

        params = SamplingParams(
            max_tokens=1,
            temperature=0.0,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        name = f"floor {next(self._number)}"
        async with self._engine.asked(name, prompt, params, salt="") as outputs:
            return (await outputs.get()).num_cached_tokens or 0

    async def keep(self, about: int) -> list[int]:
        """Read about so many tokens; give the part that is kept."""
        prompt = self.tokens(about)
        await self.read(prompt)
        return prompt[: await self.read(prompt)]

    async def seconds(self, kept: list[int], number: int) -> tuple[float, float]:
        """Read so many questions behind a kept part; give elapsed and processor time."""
        started, spent = time.perf_counter(), await self._processor()
        async with anyio.create_task_group() as group:
            for _ in range(number):
                group.start_soon(self._check, [*kept, *self.tokens(QUESTION)], len(kept))
        passed = time.perf_counter() - started
        return passed, await self._processor() - spent

    async def _check(self, prompt: list[int], kept: int) -> None:
        found = await self.read(prompt)
        assert found == kept, f"{found} of {kept} tokens were kept"

    async def _processor(self) -> float:
        [seconds] = await self._engine.collective_rpc("cpu_seconds")
        return seconds + time.process_time()


async def run(bundle: Path, about: tuple[int, ...], repeats: int) -> None:
    """Measure and print."""
    prepare_environment(debug=False)
    loaded = load_bundle(bundle)
    engine = await anyio.to_thread.run_sync(partial(launch, loaded, WorkerSettings(), stock=True))
    try:
        asker = Asker(engine, loaded.manifest.summary.vocab_size)
        found: dict[tuple[int, int], list[tuple[float, float]]] = {}
        for _ in range(repeats):
            states = [await asker.keep(each) for each in about]
            for kept in states:
                await asker.seconds(kept, MANY)
            for kept, number in product(states, (1, MANY)):
                taken = await asker.seconds(kept, number)
                found.setdefault((len(kept), number), []).append(taken)
    finally:
        await anyio.to_thread.run_sync(engine.shutdown)
    print(machine_line())
    for place, name in enumerate(("elapsed", "processor time")):
        ms = {key: 1e3 * median(times[place] for times in each) for key, each in found.items()}
        first = min(kept for kept, _ in ms)
        for kept in sorted({kept for kept, _ in ms}):
            one, many = ms[kept, 1], ms[kept, MANY]
            longer = one / ms[first, 1]
            print(
                f"{name}, {QUESTION} tokens behind {kept:,}: {one:.1f} ms, {longer:.2f} times that "
                f"behind {first:,}; {MANY} at once {many:.1f} ms, {many / one:.2f} times"
            )


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--about", default="700,2000,8000", help="kept tokens, with commas between")
    parser.add_argument("--repeats", type=int, default=9)
    arguments = parser.parse_args()
    about = tuple(int(each) for each in arguments.about.split(","))
    anyio.run(run, arguments.bundle, about, arguments.repeats)


if __name__ == "__main__":
    main()
