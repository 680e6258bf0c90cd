"""What a decision costs when its state is new, known, or has grown; and eight questions at once.

    python -m benchmarks.reuse [--model BUNDLE] [--dtype float32]

Without --model it takes the small bundle that `make bundle` makes. Not part of `make bench`'s other
rows: it starts vLLM. Each figure is the median of several decisions on states of their own.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from pathlib import Path
from typing import Literal

import anyio
from rich.console import Console
from rich.table import Table

from benchmarks.machine import machine_line
from engine.bundle import load_bundle
from engine.contract import Ask, DecisionReply, DecisionRequest
from engine.llm.backend import VllmBackend
from engine.records import ask_from_questions
from games.questions import Option, Question, choice

WORDS = (200, 2_000, 8_000)  # of a state
GROWN = 50  # words added
REPEATS = 5
AT_ONCE = 8
STEPS = tuple(Option(name, f"go {name} by one region") for name in ("north", "east", "south"))


class Bench:
    """Asks one engine and times it."""

    def __init__(self, backend: VllmBackend) -> None:
        self._backend = backend
        self._asked = 0

    async def ask(self, state: str, count: int) -> tuple[float, DecisionReply]:
        """Ask `count` questions nobody asked before; give milliseconds and the reply."""
        self._asked += 1
        questions = tuple(self._question(number) for number in range(count))
        request = DecisionRequest(
            id=f"d{self._asked}",
            attempt=1,
            source="bench",
            affinity="bench",
            remaining_s=600.0,
            ask=self._ask(state, questions),
        )
        started = time.perf_counter()
        reply = await self._backend.decide(request)
        return (time.perf_counter() - started) * 1000, reply

    def _question(self, number: int) -> Question:
        return choice(
            f"q{number}", f"Question {self._asked}-{number}: which step is best now?", STEPS
        )

    def _ask(self, state: str, questions: tuple[Question, ...]) -> Ask:
        return ask_from_questions(state=state, public_end=len(state), questions=questions)


def state_of(words: int, seed: int) -> str:
    """Make a state that shares no start with another one."""
    source = random.Random(seed)
    return f"Journey {seed}.\n" + " ".join(
        source.choice(("river", "ridge", "camp", "rain", "wolf", "bread", "night", "path"))
        for _ in range(words)
    )


async def main(model: Path, dtype: Literal["float32", "bfloat16"]) -> None:
    """Print the table."""
    console = Console()
    console.print(machine_line(), soft_wrap=True, highlight=False)
    table = Table(title=f"One question, and {AT_ONCE} on a known state ({dtype}), median ms")
    for column in ("tokens", "new", "known", "grown", "reused", f"{AT_ONCE} at once", "steps"):
        table.add_column(column, justify="right")
    backend = await VllmBackend.start(
        load_bundle(model), dtype=dtype, window=32_768, kv_cache_memory=512 << 20
    )
    try:
        bench = Bench(backend)
        for words in WORDS:
            columns: list[list[float]] = [[], [], [], []]
            tokens = reused = steps = 0
            for seed in range(REPEATS):
                state = state_of(words, seed * 100_000 + words)
                new, _ = await bench.ask(state, 1)
                known, reply = await bench.ask(state, 1)
                tokens, reused, steps = reply.tokens, reply.tokens_reused, reply.steps
                many, _ = await bench.ask(state, AT_ONCE)
                grown, _ = await bench.ask(state + " " + state_of(GROWN, seed), 1)
                for column, figure in zip(columns, (new, known, grown, many), strict=True):
                    column.append(figure)
            new, known, grown, many = map(statistics.median, columns)
            times = (f"{figure:,.0f}" for figure in (new, known, grown))
            table.add_row(f"{tokens:,}", *times, f"{reused:,}", f"{many:,.0f}", str(steps))
    finally:
        await backend.close()
    console.print(table)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, default=Path(".ostinato/bundle"))
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="bfloat16")
    arguments = parser.parse_args()
    anyio.run(main, arguments.model, arguments.dtype)
