"""The card's memory runs out, or it fails: the worker starts again, and no answer is wrong."""

from __future__ import annotations

from pathlib import Path

import anyio
import psutil
import pytest
from msgspec.structs import replace

from engine.client import QueueEngine
from engine.contract import Ask, DecisionReply
from engine.embedded import embedded
from engine.models import open_model
from engine.settings import WorkerSettings
from tests.support.asker import question, words
from tests.support.bundles import adapter_bundle
from tests.support.queues import alive, request, until

pytest.importorskip("vllm")

pytestmark = pytest.mark.vllm

PLANTED = Path(__file__).parents[1] / "support" / "planted"
FAULTS = {
    "memory": "OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
    "card": "AcceleratorError: CUDA error: an illegal memory access was encountered",
}
MANY = 6


async def ask_all(engine: QueueEngine, turn: str) -> dict[int, DecisionReply]:
    replies: dict[int, DecisionReply] = {}

    async def one(number: int) -> None:
        state = words(100, number // 2)
        ask = Ask(state=state, public_end=len(state), fields=(question(number % 2),))
        made = request(f"{turn}-{number}", affinity=f"m{number}", remaining_s=300)
        replies[number] = await engine.decide(replace(made, ask=ask))

    async with anyio.create_task_group() as group:
        for number in range(MANY):
            group.start_soon(one, number)
    return replies


def probabilities(replies: dict[int, DecisionReply]) -> list[float]:
    return [
        probability
        for number in range(MANY)
        for answer in replies[number].answers
        for probability in answer.probabilities
    ]


async def kill_worker_of(engine: int) -> None:
    """Kill the worker that an engine process belongs to: the engine does not outlive it."""
    assert alive(engine)
    psutil.Process(engine).parent().kill()
    await until(lambda: not alive(engine))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("fault", ["memory", pytest.param("card", marks=pytest.mark.long)])
async def test_a_fault_of_the_card_is_followed_by_right_answers(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = Path(__file__).parents[2]
    monkeypatch.setenv("PYTHONPATH", f"{PLANTED}:{root}")
    monkeypatch.setenv("PLANTED", str(tmp_path))
    model = open_model(str(adapter_bundle(tmp_path / "bundle").path))
    settings = WorkerSettings(dtype="float32", window=1024)
    async with embedded(model, home=tmp_path, source="log1", settings=settings) as engine:
        expected = await ask_all(engine, "before")
        (tmp_path / "fault").write_text(FAULTS[fault])
        found = await ask_all(engine, "during")
        starts = (tmp_path / "starts").read_text().split()
        await kill_worker_of(int(starts[-1]))
    assert len(set(starts)) == 2
    assert not (tmp_path / "fault").exists()
    assert all(reply.failure is None for reply in found.values())
    assert probabilities(found) == pytest.approx(probabilities(expected), abs=1e-4)
