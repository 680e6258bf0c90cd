"""What a worker refuses, at its start and at its door, and what it holds when all is over."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
import pytest

from engine.bundle import Bundle, load_bundle, with_answer, write_manifest
from engine.contract import Ask, DecisionRequest
from engine.errors import BadBundle, BadRequest, EngineError, EngineFailed, RecordTooLong
from engine.selftest import FIXED, check_answer
from engine.settings import WorkerSettings
from tests.support.bundles import ORACLE, adapter_bundle

pytest.importorskip("vllm")

pytestmark = pytest.mark.vllm

WINDOW = 2048
EIGHT = tuple(
    msgspec.structs.replace(FIXED.fields[0], id=f"{n}", instruction=f"Which door opens {n}?")
    for n in range(8)
)
EXACT = WorkerSettings(dtype="float32", window=WINDOW, max_batched_tokens=160)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """The oracle's base and adapter, with the answer that plain torch gives."""
    from engine.extract.recorded import record_answer

    plain = adapter_bundle(tmp_path_factory.mktemp("adapted"))
    assert record_answer(plain) == ""
    made = load_bundle(plain.path)
    assert made.manifest.answer
    return made


@pytest.fixture(scope="module")
async def backend(bundle: Bundle):
    """It starts, so its answer is the recorded one."""
    from engine.llm.backend import VllmBackend

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_ALLOW_INSECURE_SERIALIZATION", "1")
        backend = await VllmBackend.start(bundle, EXACT)
        yield backend
        await backend.close()


async def in_worker(backend: Any, function: Callable[[Any], Any]) -> Any:
    [result] = await backend.engine.collective_rpc(function)
    return result


def request(ask: Ask, name: str = "decision") -> DecisionRequest:
    return DecisionRequest(
        id=name, attempt=1, source="test", affinity="test", remaining_s=60, ask=ask, explain=True
    )


def long(words: int) -> Ask:
    return msgspec.structs.replace(FIXED, state=" a" * words)


async def test_the_recorded_answer_is_that_of_the_whole_path(backend: Any, bundle: Bundle) -> None:
    reply = await backend.decide(request(FIXED))
    recorded = bundle.manifest.answer
    assert max(abs(a - b) for a, b in zip(reply.answers[0].logits, recorded, strict=True)) < 1e-4
    await backend._test(bundle, EXACT)


async def test_another_answer_than_the_recorded_is_refused(backend: Any, bundle: Bundle) -> None:
    first, *rest = bundle.manifest.answer
    other = msgspec.structs.replace(
        bundle, manifest=msgspec.structs.replace(bundle.manifest, answer=(first + 0.01, *rest))
    )
    with pytest.raises(BadBundle, match=r"the bundle records .* 0\.01 apart, 0\.001 is"):
        await backend._test(other, EXACT)
    rounded = msgspec.structs.replace(EXACT, dtype="bfloat16")
    await backend._test(other, rounded)  # number formats explain as much
    check_answer((1.0,), (), EXACT)  # nothing is recorded
    with pytest.raises(BadBundle, match="nan"):
        check_answer((float("nan"),), (1.0,), EXACT)


@pytest.mark.parametrize("matrix", ["lora_a_stacked", "lora_b_stacked"])
async def test_an_adapter_that_is_applied_in_part_is_refused(
    backend: Any, bundle: Bundle, matrix: str
) -> None:
    def lose(worker: Any) -> None:
        modules = worker.model_runner.lora_manager._adapter_manager.modules
        worker.lost = getattr(modules["language_model.model.layers.5.mlp.gate_up_proj"], matrix)[1]
        worker.kept = worker.lost.clone()
        worker.lost.zero_()

    def restore(worker: Any) -> None:
        worker.lost.copy_(worker.kept)

    await in_worker(backend, lose)
    try:
        with pytest.raises(BadBundle, match=r"without [12] of its tensors, first .*\.mlp\."):
            await backend._test(bundle, EXACT)
    finally:
        await in_worker(backend, restore)
    await backend._test(bundle, EXACT)


async def test_an_adapter_that_changes_nothing_is_refused(
    backend: Any, bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    stock = backend._read_all

    async def without(name: str, records: Any, adapter: Any, **options: Any) -> Any:
        return await stock(name, records, None, **options)

    monkeypatch.setattr(backend, "_read_all", without)
    with pytest.raises(BadBundle, match="the adapter changes nothing"):
        await backend._test(bundle, EXACT)


def test_name_and_fingerprint_change_with_adapter_and_head(bundle: Bundle, tmp_path: Path) -> None:
    import shutil

    from safetensors import safe_open
    from safetensors.torch import load_file, save_file

    from engine.llm.launch import adapter_request, fingerprint

    assert bundle.adapter is not None
    changed: list[Bundle] = [bundle]
    for part in ("adapter", "head"):
        folder = tmp_path / part
        shutil.copytree(bundle.adapter, folder / "adapter")
        (folder / "head").mkdir()
        for name in ("joint_head.safetensors", "joint_head_config.json"):
            shutil.copy(ORACLE / "clef" / name, folder / "head")
        file = next((folder / part).glob("*.safetensors"))
        tensors = load_file(file)
        name = sorted(tensors)[0]
        tensors[name] = tensors[name] * 2
        with safe_open(file, framework="pt") as opened:
            metadata = opened.metadata()
        save_file(tensors, file, metadata)
        changed.append(
            write_manifest(
                folder,
                name="changed",
                base=ORACLE / "base",
                head=folder / "head",
                adapter=folder / "adapter",
            )
        )
    names = {adapter_request(each).lora_name for each in changed}  # pyright: ignore[reportOptionalMemberAccess]
    assert len(names) == len({fingerprint(each, EXACT) for each in changed}) == 3
    # what is not content changes neither
    recorded = with_answer(changed[1], (1.0, 2.0, 3.0))
    assert load_bundle(recorded.path).hash == changed[1].hash


@pytest.mark.parametrize("bad", ["nan", "inf"])
async def test_an_answer_that_is_not_finite_fails_alone(backend: Any, bad: str) -> None:
    def spoil(worker: Any) -> None:
        reader = worker._reader
        stock = reader._score

        def score(memories: Any, readings: Any) -> Any:
            found = stock(memories, readings)
            for logits, reading in zip(found, readings, strict=True):
                if reading.length > 600:
                    logits[1] = float(bad)
            return found

        reader._score = score

    def restore(worker: Any) -> None:
        del worker._reader._score

    outcomes: dict[int, Any] = {}

    async def ask(words: int) -> None:
        try:
            outcomes[words] = await backend.decide(request(long(words), f"d{words}"))
        except EngineError as error:
            outcomes[words] = error

    await in_worker(backend, spoil)
    try:
        async with anyio.create_task_group() as group:
            for words in (20, 700, 200):
                group.start_soon(ask, words)
    finally:
        await in_worker(backend, restore)
    assert isinstance(outcomes[700], EngineFailed)
    assert "not finite" in str(outcomes[700])
    assert outcomes[20].answers
    assert outcomes[200].answers
    assert (await backend.decide(request(long(700)))).answers


def held(worker: Any) -> list[int]:
    """Count what scheduler and worker keep of requests, and the blocks that are in use."""
    import inspect

    callers = [frame.frame.f_locals.get("self") for frame in inspect.stack()]
    [scheduler] = {each.scheduler for each in callers if hasattr(each, "scheduler")}
    pool = scheduler.kv_cache_manager.block_pool
    tables = (scheduler.requests, scheduler._stops, scheduler._courses, scheduler._on_state)
    return [
        *map(len, tables),
        len(worker._reader),
        len(worker.model_runner.requests),
        pool.num_gpu_blocks - 1 - pool.get_num_free_blocks(),
    ]


@pytest.mark.parametrize("how", ["cancelled", "deadline"])
async def test_a_decision_that_is_given_up_frees_everything(backend: Any, how: str) -> None:
    with anyio.fail_after(60):
        scope = anyio.CancelScope()

        async def ask() -> None:
            with scope:
                async with anyio.create_task_group() as group:
                    for index in range(2):
                        ask = msgspec.structs.replace(long(1500 + index), fields=EIGHT)
                        group.start_soon(backend.decide, request(ask, f"d{index}"))

        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            while not all(await in_worker(backend, held)):
                await anyio.lowlevel.checkpoint()
            if how == "deadline":
                scope.deadline = anyio.current_time()
            else:
                scope.cancel()
        assert scope.cancelled_caught
        assert backend.engine.output_processor.get_num_unfinished_requests() == 0
        while any(await in_worker(backend, held)):
            await anyio.lowlevel.checkpoint()
    assert (await backend.decide(request(FIXED))).answers


async def test_what_makes_no_sense_is_refused_before_it_is_scheduled(backend: Any) -> None:
    from vllm.exceptions import VLLMClientError
    from vllm.lora.request import LoRARequest

    [good] = backend._encoder.encode(FIXED, window=WINDOW)
    [field] = good.fields
    end = len(good.input_ids)
    for change, message in (
        ({"question_span": (9, 9)}, "the span 9 to 9 is empty or outside"),
        ({"question_span": (end - 3, end + 1)}, f"tokens .* to {end}"),
        ({"option_spans": ((-4, -2),)}, "the span -4 to -2"),
        ({"option_spans": ()}, "question 1 has no options"),
    ):
        bad = msgspec.structs.replace(good, fields=(msgspec.structs.replace(field, **change),))
        with pytest.raises(BadRequest, match=message):
            await backend._read_all("bad", [bad], backend.adapter)
    with pytest.raises(RecordTooLong, match=str(WINDOW)):
        await backend.decide(request(long(WINDOW)))
    other = LoRARequest("clef@other", 2, backend.adapter.lora_path)
    with pytest.raises(BadRequest, match=r"clef@other is unknown: this worker has clef@\w+ alone"):
        await backend._read_all("bad", [good], other)
    with pytest.raises(VLLMClientError, match="clef@other is unknown"):
        await backend.engine.add_lora(other)
    assert not any(await in_worker(backend, held))
    assert (await backend.decide(request(FIXED))).answers


async def test_parts_that_do_not_belong_together_are_refused_before_loading(
    bundle: Bundle, tmp_path: Path
) -> None:
    import shutil

    from engine.llm.backend import VllmBackend

    shutil.copytree(ORACLE / "clef", tmp_path / "parts")
    made = write_manifest(
        tmp_path, name="parts", base=ORACLE / "base", head=tmp_path / "parts",
        tokenizer=tmp_path / "parts",
    )  # fmt: skip
    tokenizer = made.tokenizer / "tokenizer.json"
    tokenizer.write_text(tokenizer.read_text().replace("\n", " \n", 1))
    with pytest.raises(BadBundle, match=r"tokenizer\.json: .*(SHA-256|bytes, the manifest says)"):
        await VllmBackend.start(load_bundle(tmp_path), EXACT)
