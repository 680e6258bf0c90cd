from __future__ import annotations

import sys
import time

import anyio
import pytest

from engine.errors import BadRequest, EngineFailed, RecordTooLong
from engine.mock import MockBackend, MockSettings, measure, parse_mock
from tests.support.queues import request


def mock(**settings: float) -> MockBackend:
    return MockBackend(MockSettings(**settings))  # pyright: ignore[reportArgumentType]


def test_settings_are_read_from_the_model_spec() -> None:
    assert parse_mock("mock") == parse_mock("mock:") == MockSettings()
    assert parse_mock("mock:seed=3,delay_ms=2.5,fail=0.1,crash=1,window=99") == MockSettings(
        seed=3, delay_ms=2.5, fail=0.1, crash=1, window=99
    )


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        ("mock:sed=1", "sed=1"),
        ("mock:seed", "seed"),
        ("mock:seed=x", "seed"),
        ("mock:fail=1.5", "fail"),
        ("mock:fail=nan", "fail"),
        ("mock:crash=-1", "crash"),
        ("mock:delay_ms=-1", "delay_ms"),
        ("mock:delay_ms=inf", "delay_ms"),
        ("mock:window=0", "window"),
    ],
)
def test_bad_settings_are_refused_by_name(spec: str, named: str) -> None:
    with pytest.raises(BadRequest, match=named):
        parse_mock(spec)


async def test_answers_depend_on_the_content_and_the_seed_alone() -> None:
    first = await mock(seed=1).decide(request("a"))
    again = await mock(seed=1).decide(request("b", attempt=7))
    other_seed = await mock(seed=2).decide(request("a"))
    other_state = await mock(seed=1).decide(request("a", state="another"))
    assert first.answers == again.answers
    assert first.answers != other_seed.answers
    assert first.answers != other_state.answers
    assert sum(first.answers[0].probabilities) == pytest.approx(1)
    assert first.tokens == first.tokens_read + first.tokens_reused == measure(request().ask)


async def test_a_share_of_decisions_fails_the_same_ones_each_time() -> None:
    backend = mock(seed=1, fail=0.3)

    async def fails(number: int) -> bool:
        try:
            await backend.decide(request(f"d{number}"))
        except EngineFailed:
            return True
        return False

    failed = [await fails(number) for number in range(1000)]
    assert failed == [await fails(number) for number in range(1000)]
    assert 240 < sum(failed) < 360


async def test_a_delay_is_waited_by_all_at_once() -> None:
    backend = mock(delay_ms=100)
    started = time.monotonic()
    async with anyio.create_task_group() as group:
        for number in range(100):
            group.start_soon(backend.decide, request(f"d{number}"))
    assert 0.1 <= time.monotonic() - started < 5


async def test_a_record_over_the_window_is_refused_with_both_numbers() -> None:
    tokens = measure(request().ask)
    await mock(window=tokens).decide(request())
    with pytest.raises(RecordTooLong, match=rf"{tokens} tokens, the window {tokens - 1}"):
        await mock(window=tokens - 1).decide(request())


async def test_a_crash_kills_the_process_at_the_first_delivery_only() -> None:
    code = """
import anyio, sys
from engine.mock import MockBackend, MockSettings
from tests.support.queues import request
anyio.run(MockBackend(MockSettings(crash=1)).decide, request(attempt=int(sys.argv[1])))
"""
    first = await anyio.run_process([sys.executable, "-c", code, "1"], check=False)
    second = await anyio.run_process([sys.executable, "-c", code, "2"], check=False)
    assert (first.returncode, second.returncode) == (-9, 0)
