"""What decisions cost on a card at a real size, head included, with random weights.

    python -m benchmarks.gpu.decisions [--shape 27b] [--rows FILE] [--only PART ...] [--vllm JSON]

One engine start. First a check that reuse and graphs change no answer beyond bf16's noise; then the
parts, each row printed and written when it is there. `steps` are engine steps of a decision.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio

from benchmarks.gpu.asking import Asker, Rows, distance, start
from benchmarks.gpu.check import largest, reuse
from benchmarks.gpu.shape import SHAPES, write_bundle

KNOWN, QUESTION = 14_000, 120
SIZES = (64, 96, 128, 144, 160, 192, 224, 256, 320, 384, 512, 640, 768, 896, 1024)
"""Numbers of rows that vLLM captures for prompts; each costs a second of the start."""


def repeats(milliseconds: float) -> int:
    """At least 20 under half a second, 5 above."""
    return 20 if milliseconds < 500 else 5


async def cold(asker: Asker, rows: Rows) -> None:
    """Nothing is kept: records of so many tokens."""
    for tokens in (310, 1015, 2022, 4002, 8019, 16_002, 32_013):
        times: list[float] = []
        steps = 0
        for index in range(2 + (20 if tokens < 4000 else 5)):
            state = asker.state(tokens - QUESTION, tokens + index)
            took, reply = await asker.question_on(state, QUESTION, salt=f"cold{tokens}.{index}")
            assert (reply.tokens, reply.tokens_reused) == (tokens, 0)
            steps = reply.steps
            times.append(took)
        rows.times("cold", times[2:], tokens=tokens, steps=steps)


async def known(asker: Asker, rows: Rows, case: str = "known") -> None:
    """A state that was read before: one new question, then several at once."""
    state = asker.state(KNOWN, 1)
    await asker.question_on(state, QUESTION)
    times: list[float] = []
    reply: Any = None
    for _ in range(23):
        took, reply = await asker.question_on(state, QUESTION)
        times.append(took)
    rows.times(
        case, times[3:], state=KNOWN, question=QUESTION, steps=reply.steps, read=reply.tokens_read
    )


async def grown(asker: Asker, rows: Rows) -> None:
    """A state that grows by 60 tokens each time, across borders of blocks."""
    times: list[float] = []
    steps: list[int] = []
    state = asker.state(KNOWN, 2)
    await asker.question_on(state, QUESTION)
    for index in range(26):
        state += asker.state(asker.start + 60, 1000 + index)
        took, reply = await asker.question_on(state, QUESTION)
        assert reply.tokens_reused > KNOWN - 16
        times.append(took)
        steps.append(reply.steps)
    rows.times("grown", times[3:], by=60, question=QUESTION, steps=statistics.mean(steps[3:]))


async def several(asker: Asker, rows: Rows) -> None:
    """Several questions at once, on a known state and on one that grew by 300 tokens."""
    state = asker.state(KNOWN, 3)
    await asker.question_on(state, QUESTION)
    for tokens in (QUESTION, 96):
        for count in (1, 2, 4, 8):
            times: list[float] = []
            reply: Any = None
            for _ in range(23):
                took, reply = await asker.questions_on(state, count, tokens)
                times.append(took)
            rows.times("several known", times[3:], count=count, question=tokens, steps=reply.steps)
    times = []
    for index in range(23):
        state += asker.state(asker.start + 300, 2000 + index)
        took, reply = await asker.questions_on(state, 8, QUESTION)
        times.append(took)
    rows.times("several grown", times[3:], count=8, by=300, question=QUESTION, steps=reply.steps)


async def adapter(asker: Asker, rows: Rows) -> None:
    """What the adapter adds to reading 16,002 tokens."""
    backend = asker.backend
    medians: dict[str, float] = {}
    for name, request in (("with", backend.adapter), ("without", None)):
        times: list[float] = []
        for index in range(6):
            tokens = 16_002
            ask = _ask(asker, asker.state(tokens - QUESTION, 3000 + index))
            [record] = backend._encoder.encode(ask, window=backend.window)
            started = time.perf_counter()
            await backend._read_all(f"{name}{index}", [record], request, salt=f"a{name}{index}")
            times.append((time.perf_counter() - started) * 1e3)
        medians[name] = statistics.median(times[1:])
        rows.times(f"16k {name} adapter", times[1:], tokens=tokens)
    share = medians["with"] / medians["without"] - 1
    rows.write("adapter overhead", tokens=16_002, share=round(share, 4))


async def rate(asker: Asker, rows: Rows) -> None:
    """Short decisions a second, 32 in flight."""
    count, tokens = 400, 300
    states = [asker.state(tokens - QUESTION, 10_000 + index) for index in range(count)]
    pending = list(enumerate(states))

    async def ask_on() -> None:
        while pending:
            index, state = pending.pop()
            await asker.question_on(state, QUESTION, salt=f"r{index}")

    started = time.perf_counter()
    async with anyio.create_task_group() as group:
        for _ in range(32):
            group.start_soon(ask_on)
    seconds = time.perf_counter() - started
    rows.write("short decisions", tokens=tokens, in_flight=32, per_second=round(count / seconds, 1))


async def chat(asker: Asker, rows: Rows) -> None:
    """Tokens a second of four chats, alone and beside a known-state decision every 100 ms."""
    state = asker.state(KNOWN, 4)
    await asker.question_on(state, QUESTION)
    speeds: dict[str, float] = {}
    waits: list[float] = []
    for name in ("alone", "beside"):
        stamps: list[list[float]] = [[] for _ in range(4)]
        done = anyio.Event()

        async def decide(done: anyio.Event = done) -> None:
            while not done.is_set():
                took, _ = await asker.question_on(state, QUESTION)
                waits.append(took)
                await anyio.sleep(max(0.0, 0.1 - took / 1e3))

        async def talk(stamps: list[list[float]] = stamps, done: anyio.Event = done) -> None:
            async with anyio.create_task_group() as talks:
                for index, own in enumerate(stamps):
                    prompt = list(range(10 + index, 510 + index))
                    talks.start_soon(asker.chat, prompt, 256, own)
            done.set()

        async with anyio.create_task_group() as group:
            group.start_soon(talk)
            if name == "beside":
                group.start_soon(decide)
        # from the sixteenth token on all four decode
        speeds[name] = sum((len(own) - 16) / (own[-1] - own[16]) for own in stamps)
        rows.write(f"chat {name}", streams=4, tokens_per_second=round(speeds[name], 1))
    rows.times("decision beside chat", waits, state=KNOWN, question=QUESTION)
    rows.write("chat share", share=round(speeds["beside"] / speeds["alone"], 3))


async def plain(asker: Asker, rows: Rows) -> None:
    """The same known state without graphs of linear attention."""
    await asker.in_worker(largest(0))
    await known(asker, rows, "known, linear attention without graphs")
    await asker.in_worker(largest(1024))


async def profiled(asker: Asker, rows: Rows) -> None:
    """Where a known-state decision's time goes."""
    state = asker.state(KNOWN, 5)
    for _ in range(4):
        await asker.question_on(state, QUESTION)

    def begin(worker: Any) -> None:
        from torch.profiler import ProfilerActivity, profile

        worker.profile = profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])
        worker.profile.__enter__()

    def end(worker: Any) -> Any:
        import torch

        torch.cuda.synchronize()
        worker.profile.__exit__(None, None, None)
        found = worker.profile.key_averages()
        device = sorted(found, key=lambda each: -each.self_device_time_total)
        host = sorted(found, key=lambda each: -each.self_cpu_time_total)
        return (
            sum(each.self_device_time_total for each in found) / 1e3,
            [(e.key[:70], e.count, e.self_device_time_total / 1e3) for e in device[:14]],
            [(e.key[:70], e.count, e.self_cpu_time_total / 1e3) for e in host[:14]],
        )

    await asker.in_worker(begin)
    asked = 3
    for _ in range(asked):
        took, _ = await asker.question_on(state, QUESTION)
    busy, device, host = await asker.in_worker(end)
    rows.write("profile", decisions=asked, last_ms=round(took, 1), device_ms=round(busy, 1))
    for name, listed in (("device", device), ("host", host)):
        for key, count, milliseconds in listed:
            rows.write(f"profile {name}", name=key, count=count, ms=round(milliseconds, 2))


def redraw(worker: Any) -> None:
    """Draw weights that make states depend on what was read; vLLM's own are too small for that."""
    import torch

    torch.manual_seed(3)
    for name, parameter in worker.model_runner.model.named_parameters():
        values = parameter.data
        if name.endswith("A_log"):
            values.uniform_(-3, 0)
        elif name.endswith("dt_bias"):
            values.normal_(-1, 0.3)
        elif "linear_attn.norm" in name:
            values.fill_(1)
        elif values.dim() < 2:
            values.normal_(0, 0.05)
        else:
            values.normal_(0, 0.5 if "embed" in name else values.shape[-1] ** -0.5)


async def right(asker: Asker, rows: Rows) -> None:
    """Show that hits and graphs answer as a plain read does, up to bf16's noise."""
    await asker.in_worker(redraw)
    await asker.backend.engine.reset_prefix_cache()
    lengths = (130, 300, 1000, 1567, 5000)
    worst = await reuse(asker, rows, lengths)
    rows.write("check reuse", worst=worst)
    furthest = {"noise": 0.0, "graphs": 0.0}
    for length in lengths:
        state, field = asker.state(length, length), asker.question(QUESTION)
        replies: dict[str, Any] = {}
        for name, rows_of_graphs in (("plain", 0), ("graphs", 1024)):
            await asker.in_worker(largest(rows_of_graphs))
            for again in range(3):  # a graph is made the second time and used from then on
                salt = f"{name} {length} {again}"
                await asker.question_on(state, QUESTION, salt=salt)
                _, replies[name] = await asker.ask(state, (field,), salt=salt)
        _, replies["noise"] = await asker.ask(state, (field,), salt=f"alone {length}")
        off = {name: distance(replies["plain"], replies[name]) for name in furthest}
        furthest = {name: max(furthest[name], value) for name, value in off.items()}
        rows.write("check graphs", state=length, **off)
    rows.write("check graphs", worst=furthest)


PARTS: dict[str, Callable[[Asker, Rows], Awaitable[None]]] = {
    "right": right,
    "known": known,
    "plain": plain,
    "grown": grown,
    "cold": cold,
    "several": several,
    "adapter": adapter,
    "rate": rate,
    "chat": chat,
    "profile": profiled,
}


def _ask(asker: Asker, state: str) -> Any:
    from engine.contract import Ask

    return Ask(state=state, public_end=len(state), fields=(asker.question(QUESTION),))


async def main(arguments: argparse.Namespace) -> None:
    """Start the engine, then run the parts."""
    import torch

    rows = Rows(arguments.rows)
    os.environ["VLLM_ALLOW_INSECURE_SERIALIZATION"] = "1"
    device = "cuda" if torch.cuda.is_available() else "cpu"
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        bundle = write_bundle(Path(folder), arguments.shape, device=device)
        torch.cuda.empty_cache()
        rows.write("bundle", seconds=round(time.perf_counter() - started, 1))
        sizes = [1, 2, 4, 8, 16, 32, *SIZES]
        engine = {
            "load_format": "dummy",
            "compilation_config": {"cudagraph_capture_sizes": sizes},
        }
        started = time.perf_counter()
        backend = await start(
            bundle,
            engine | arguments.vllm,
            dtype="bfloat16",
            window=32_768,
            max_seqs=32,
            max_batched_tokens=arguments.batched,
        )
        rows.write("start", shape=arguments.shape, seconds=round(time.perf_counter() - started, 1))
        try:
            asker = Asker(backend)
            for name in arguments.only or PARTS:
                try:
                    await PARTS[name](asker, rows)
                except Exception as error:  # the other parts are still worth their time
                    rows.write("failed", part=name, error=f"{type(error).__name__}: {error}"[:500])
                    if backend.dead:
                        raise
        finally:
            await backend.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", choices=sorted(SHAPES), default="27b")
    parser.add_argument("--rows", type=Path)
    parser.add_argument("--only", nargs="+", choices=sorted(PARTS))
    parser.add_argument("--batched", type=int, default=8192, help="tokens of a step at most")
    parser.add_argument("--vllm", type=json.loads, default={}, help="arguments of vLLM, as JSON")
    sys.exit(anyio.run(main, parser.parse_args()))
