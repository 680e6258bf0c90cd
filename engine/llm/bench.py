"""What a decision costs when its state is known, grown or new, and what many questions on one cost.

Three ways of reading are compared: as this engine reads, with nothing reused (every record has a
salt of its own, so that the same engine shares nothing), and as vLLM's own scheduler reuses: whole
blocks.
"""

from __future__ import annotations

import random
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import count, product
from statistics import median

import anyio
import anyio.to_thread
import msgspec

from engine.bundle import Bundle
from engine.contract import Ask, DecisionRequest, Form
from engine.errors import EngineFailed
from engine.figures import GROWTH, NUMBERS, FeatureMemory, Figure, Measured, Way
from engine.llm.backend import VllmBackend
from engine.llm.launch import adapter_request, launch, prepare_environment
from engine.llm.plan import plan_of
from engine.llm.settings import KEY
from engine.records import ask_from_questions
from engine.settings import WorkerSettings
from engine.tokens import PREFIX, Encoder, Record
from games.questions import Option, choice

_OURS: tuple[Way, ...] = ("ostinato", "nothing reused")
_OPTIONS = (Option("left"), Option("right"))
_WORDS = ("river", "ridge", "camp", "rain", "wolf", "bread", "night", "path")


class _Reader:
    """Asks questions that nobody asked before, in one of the ways."""

    def __init__(self, way: Way, backend: VllmBackend, encoder: Encoder) -> None:
        self.way: Way = way
        self.encoder = encoder
        self._backend = backend
        self._prefix = len(encoder.ids(PREFIX))
        self._asked = count()

    def state(self, tokens: int, seed: int) -> str:
        """Make a state of so many tokens that shares no start with one of another seed."""
        pick = random.Random(seed)
        text = f"Journey {seed}."
        while (missing := tokens - len(self.encoder.ids(text))) > 0:
            text += "".join(f" {pick.choice(_WORDS)}" for _ in range(max(1, missing // 2)))
        return text

    async def ask(self, state: str, number: int = 1, form: Form = "independent") -> int:
        """Ask so many questions at once; give the tokens that were read for them."""
        questions = [
            choice(f"q{index}", f"Way {next(self._asked)}?", _OPTIONS) for index in range(number)
        ]
        ask = ask_from_questions(state=state, public_end=len(state), questions=questions, form=form)
        if self.way == "ostinato":
            return await self._decide(ask)
        read: list[int] = []

        async def one(alone: Ask) -> None:
            if self.way == "whole blocks":
                read.append(await self._read(alone))
            else:
                salted = msgspec.structs.replace(alone, salt=f"alone {next(self._asked)}")
                read.append(await self._decide(salted))

        async with anyio.create_task_group() as group:
            for field in ask.fields:
                group.start_soon(one, msgspec.structs.replace(ask, fields=(field,)))
        return sum(read)

    async def cpu_seconds(self) -> float:
        """Give the processor time that both processes have taken."""
        [seconds] = await self._backend.engine.collective_rpc("cpu_seconds")
        return seconds + time.process_time()

    async def _decide(self, ask: Ask) -> int:
        request = DecisionRequest(
            id=f"bench {next(self._asked)}",
            attempt=1,
            source="bench",
            affinity="bench",
            remaining_s=600.0,
            ask=ask,
        )
        return (await self._backend.decide(request)).tokens_read

    async def _read(self, ask: Ask) -> int:
        """Have a record read and scored by an engine whose scheduler drops the scores."""
        from vllm.outputs import RequestOutput
        from vllm.sampling_params import RequestOutputKind, SamplingParams

        encode = partial(self.encoder.encode, ask, window=self._backend.window)
        records: list[Record] = await anyio.to_thread.run_sync(encode)
        [record] = records
        params = SamplingParams(
            max_tokens=1,
            temperature=0.0,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
            extra_args={KEY: plan_of(record, state_start=self._prefix, siblings=0, salt="")},
            skip_clone=True,
        )
        async with self._backend.engine.asked(
            f"bench {next(self._asked)}",
            record.input_ids,
            params,
            salt="",
            adapter=self._backend.adapter,
        ) as outputs:
            output = await outputs.get()
        if not isinstance(output, RequestOutput):
            raise EngineFailed("the engine ended a record without an output; ask again")
        return len(record.input_ids) - (output.num_cached_tokens or 0)


async def measure(
    bundle: Bundle,
    settings: WorkerSettings,
    *,
    sizes: Sequence[int],
    repeats: int,
    report: Callable[[str, int], None],
) -> Measured:
    """Start the engine twice, the second time with vLLM's own scheduler, and measure.

    Args:
        bundle: The model.
        settings: How to load it.
        sizes: Tokens of the states.
        repeats: Every figure is the median of so many, on states of their own.
        report: Called with what is measured now and the states done, of `number_of_states`.

    Raises:
        EngineError: The engine does not start or fails.
    """
    prepare_environment(debug=False)
    figures: list[Figure] = []
    each = repeats * len(sizes)
    report("starting the engine", 0)
    async with _engine(bundle, settings, stock=False) as backend:
        [memory] = await backend.engine.collective_rpc("feature_memory")
        encoder = Encoder(bundle.tokenizer)
        for number, way in enumerate(_OURS):
            note = partial(_note, report, way, number * each)
            figures += await _figures(_Reader(way, backend, encoder), sizes, repeats, note)
    report("starting the engine with vLLM's scheduler", len(_OURS) * each)
    async with _engine(bundle, settings, stock=True) as backend:
        note = partial(_note, report, "whole blocks", len(_OURS) * each)
        figures += await _figures(_Reader("whole blocks", backend, encoder), sizes, repeats, note)
    return Measured(figures, FeatureMemory(*memory))


def _note(
    report: Callable[[str, int], None], way: Way, before: int, tokens: int, done: int
) -> None:
    report(f"{way}, {tokens:,} tokens", before + done)


async def _figures(
    reader: _Reader, sizes: Sequence[int], repeats: int, note: Callable[[int, int], None]
) -> list[Figure]:
    """Measure all sizes in turn, again and again: so that what disturbs one disturbs the others."""
    times: dict[tuple[int, str], list[tuple[float, float]]] = {}
    read: dict[tuple[int, str], int] = {}

    async def timed(
        tokens: int,
        kind: str,
        state: str,
        number: int = 1,
        *,
        turns: int = 1,
        form: Form = "independent",
    ) -> None:
        started, spent, tokens_read = time.perf_counter(), await reader.cpu_seconds(), 0
        for _ in range(turns):
            tokens_read += await reader.ask(state, number, form)
        passed = (time.perf_counter() - started) * 1e3
        spent = (await reader.cpu_seconds() - spent) * 1e3
        times.setdefault((tokens, kind), []).append((passed, spent))
        read[tokens, kind] = tokens_read

    many = max(NUMBERS)
    for repeat, tokens in product(range(repeats), sizes):
        note(tokens, repeat * len(sizes) + sizes.index(tokens))
        seed = 1000 * tokens + 10 * repeat + len(reader.way)  # no state comes twice
        state = reader.state(tokens, seed)
        await timed(tokens, "new", state)
        await reader.ask(state)
        await timed(tokens, "known", state)
        await timed(tokens, "grown", state + "\n" + reader.state(GROWTH, seed))
        for number in NUMBERS:
            await timed(tokens, f"{number} at once", state, number)
        if reader.way == "ostinato":
            await timed(tokens, f"{many} in turn", state, turns=many)
            await timed(tokens, f"{many} joint", state, many, form="joint")
    return [
        Figure(
            way=reader.way,
            tokens=tokens,
            kind=kind,
            ms=median(passed for passed, _ in each),
            cpu_ms=median(spent for _, spent in each),
            read=read[tokens, kind],
        )
        for (tokens, kind), each in times.items()
    ]


@asynccontextmanager
async def _engine(
    bundle: Bundle, settings: WorkerSettings, *, stock: bool
) -> AsyncIterator[VllmBackend]:
    start = partial(launch, bundle, settings, stock=stock)
    backend = VllmBackend(
        await anyio.to_thread.run_sync(start, abandon_on_cancel=True),
        encoder=Encoder(bundle.tokenizer),
        adapter=adapter_request(bundle),
        window=settings.record_limit(bundle.window),
        fingerprint="",
    )
    try:
        yield backend
    finally:
        await backend.close()
