"""Chat beside decisions through a real vLLM on the CPU."""

from __future__ import annotations

import json
import logging
import os
import random
import signal
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from engine.bundle import Bundle, write_manifest
from engine.contract import Ask, DecisionRequest, Field
from engine.errors import BadRequest, EngineFailed
from tests.support.bundles import ORACLE, adapter_bundle
from tests.support.queues import until

pytest.importorskip("vllm")

pytestmark = pytest.mark.vllm

CHATS = json.loads((ORACLE / "generation.json").read_text())
VOCABULARY = 1024
WORDS = (" a", " b", " the", " of", " and", " to", " in")


def base_bundle(folder: Path) -> Bundle:
    """Make the bundle of the base alone."""
    folder.mkdir()
    base = ORACLE / "base"
    return write_manifest(folder, name="base", base=base, head=ORACLE / "clef", arbitrary=True)


async def start(bundle: Bundle, **settings: Any) -> Any:
    from engine.llm.backend import VllmBackend

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_ALLOW_INSECURE_SERIALIZATION", "1")
        return await VllmBackend.start(
            bundle, window=4096, max_batched_tokens=160, chat_share=0.5, **settings
        )


@pytest.fixture(scope="module")
async def adapted(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_ALLOW_INSECURE_SERIALIZATION", "1")
        bundle = adapter_bundle(tmp_path_factory.mktemp("adapted"))
        backend = await start(bundle, dtype="float32")
        yield backend
        await backend.close()


@pytest.fixture(scope="module")
async def rounded(tmp_path_factory):
    """In bf16, as the service runs."""
    backend = await start(adapter_bundle(tmp_path_factory.mktemp("rounded")), dtype="bfloat16")
    yield backend
    await backend.close()


def ids(seed: int, count: int) -> tuple[int, ...]:
    pick = random.Random(seed)
    return tuple(pick.randrange(900) for _ in range(count))


def words(seed: int, count: int) -> str:
    pick = random.Random(seed)
    return "".join(pick.choice(WORDS) for _ in range(count))


def decision(name: str, state: str, *, salt: str = "") -> DecisionRequest:
    field = Field(
        id="q",
        type="choice",
        instruction="What now?",
        option_ids=("a", "b"),
        option_texts=('{"option_id":"a"}', '{"option_id":"b"}'),
    )
    return DecisionRequest(
        id=name,
        attempt=1,
        source="test",
        affinity="test",
        remaining_s=60,
        ask=Ask(state=state, public_end=len(state), fields=(field,), salt=salt),
    )


async def talk(backend: Any, input_ids: Sequence[int], **options: Any) -> list[int]:
    from engine.llm.chat import ChatRequest

    request = ChatRequest(
        id="chat",
        input_ids=tuple(input_ids),
        **{"max_tokens": 12, "temperature": 0.0, "ignore_end": True} | options,
    )
    async with aclosing(backend.chat(request)) as tokens:
        return [token async for some in tokens for token in some.ids]


async def generate(backend: Any, input_ids: Sequence[int], **options: Any) -> Any:
    """Ask vLLM's engine itself, as its own server does."""
    from vllm.inputs.engine import tokens_input
    from vllm.sampling_params import SamplingParams

    lora, salt = options.pop("lora", None), options.pop("salt", None)
    params = SamplingParams(**{"max_tokens": 3, "temperature": 0.0} | options)
    final = None
    async for output in backend.engine.generate(
        tokens_input(list(input_ids), cache_salt=salt), params, "direct", lora_request=lora
    ):
        final = output
    return final


async def test_tokens_come_one_after_another(adapted):
    from engine.llm.chat import ChatRequest

    case = CHATS[0]
    request = ChatRequest(
        id="c", input_ids=tuple(case["input_ids"]), max_tokens=12, temperature=0.0, ignore_end=True
    )
    async with aclosing(adapted.chat(request)) as tokens:
        parts = [some async for some in tokens]
    assert len(parts) > 1
    assert [part.finished for part in parts] == [""] * (len(parts) - 1) + ["length"]
    found = [token for part in parts for token in part.ids]
    margins, expected = case["base"]["margins"], case["base"]["greedy"]
    sure = next((i for i, margin in enumerate(margins) if margin < 1e-3), len(expected))
    assert found[:sure] == expected[:sure]


async def test_a_seed_draws_the_same_tokens_whatever_runs_beside(adapted):
    """A prompt of several steps with a seed ended the engine process."""
    prompt, options = ids(1, 900), {"temperature": 1.0, "max_tokens": 16}
    alone = await talk(adapted, prompt, seed=5, salt="1", **options)
    beside: list[int] = []
    async with anyio.create_task_group() as group:

        async def again() -> None:
            beside.extend(await talk(adapted, prompt, seed=5, salt="2", **options))

        group.start_soon(again)
        for index in range(4):
            group.start_soon(adapted.decide, decision(f"d{index}", words(index, 300)))
    assert beside == alone
    assert await talk(adapted, prompt, seed=6, **options) != alone
    assert not adapted.dead


async def test_what_the_model_does_not_know_is_refused(adapted):
    for prompt in ([5000], [-1], [2**40], []):
        with pytest.raises(BadRequest):
            await talk(adapted, prompt)
    for options in ({"stop_ids": (5000,)}, {"seed": 2**64}, {"temperature": -1}):
        with pytest.raises(BadRequest):
            await talk(adapted, [1, 2, 3], **options)
    with pytest.raises(BadRequest, match="4097"):
        await talk(adapted, ids(1, 5000))
    assert await talk(adapted, [VOCABULARY - 1])


async def test_nothing_but_a_decision_gets_the_adapter(adapted):
    from vllm.exceptions import VLLMValidationError
    from vllm.lora.request import LoRARequest

    for lora in (adapted.adapter, LoRARequest("other", 2, "/nowhere")):
        with pytest.raises(VLLMValidationError, match="chat runs on the base weights"):
            await generate(adapted, [1, 2, 3], lora=lora)
    for plan in ("x", {"fields": []}):
        with pytest.raises(VLLMValidationError, match="belongs to decisions"):
            await generate(adapted, [1, 2, 3], extra_args={"ostinato": plan})
    with pytest.raises(VLLMValidationError, match="allowed_token_ids"):
        await generate(adapted, [1, 2, 3], allowed_token_ids=[5000], detokenize=False)
    with pytest.raises(VLLMValidationError, match="top_k has 65 bits"):
        await generate(adapted, [1, 2, 3], temperature=1.0, top_k=2**64)
    assert adapted.engine.output_processor.get_num_unfinished_requests() == 0
    assert await generate(adapted, [1, 2, 3])


def test_a_salt_does_not_pass_for_the_adapter():
    """Both are hashed alike: the first unit of a chat could have been the decisions'."""
    from vllm.lora.request import LoRARequest
    from vllm.sampling_params import SamplingParams
    from vllm.utils.hashing import sha256
    from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
    from vllm.v1.request import Request

    from engine.llm.guarded import make_chat

    init_none_hash(sha256)

    def first_unit(**keys: Any) -> bytes:
        request = Request(
            "r",
            list(range(20)),
            SamplingParams(max_tokens=1),
            None,
            block_hasher=get_request_block_hasher(16, sha256),
            **keys,
        )
        return request.block_hashes[0]

    adapted = first_unit(lora_request=LoRARequest("clef@1", 1, "/nowhere"))
    assert first_unit(cache_salt="clef@1") == adapted
    chat: Any = SimpleNamespace(lora_request=None, cache_salt="clef@1")
    make_chat(chat, {})
    assert first_unit(cache_salt=chat.cache_salt) != adapted


async def test_vllms_own_server_on_the_same_engine(adapted, caplog):
    import httpx

    from engine.llm.chat_server import _vllm_application

    caplog.handler.setLevel(logging.NOTSET)
    app = await _vllm_application(adapted.engine, "base")
    logging.getLogger("engine.worker").warning("after vLLM's server is imported")
    assert "after vLLM's server is imported" in caplog.text
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://chat", timeout=60) as client:

        async def post(path: str, **body: Any) -> Any:
            length = "max_completion_tokens" if "messages" in body else "max_tokens"
            settings = {"model": "base", length: 5}
            reply = await client.post(f"/v1/{path}", json=settings | body)
            return reply.status_code, reply.json()

        status, body = await post("completions", prompt=list(ids(1, 900)), seed=5)
        assert (status, body["choices"][0]["finish_reason"]) == (200, "length")
        for wrong in (
            {"prompt": [5000]},
            {"prompt": [1, 2], "vllm_xargs": {"ostinato": "x"}},
            {"prompt": [1, 2], "allowed_token_ids": [5000]},
        ):
            status, body = await post("completions", **wrong)
            assert status == 400, body
        name = adapted.adapter.lora_name
        status, body = await post("completions", prompt=[1, 2], model=name)
        assert status == 404
        status, body = await post(
            "chat/completions", messages=[{"role": "user", "content": "Is the gate open?"}], seed=3
        )
        assert (status, body["choices"][0]["message"]["role"]) == (200, "assistant")
    assert not adapted.dead
    assert (await adapted.decide(decision("after", "A gate."))).answers


async def together(
    backend: Any, chats: dict[str, tuple[int, ...]], decisions: Sequence[str], **options: Any
) -> dict[str, Any]:
    """Let everything come to a standing engine, and give the chats' outputs."""
    outputs: dict[str, Any] = {}

    async def one(name: str) -> None:
        outputs[name] = await generate(backend, chats[name], **options, salt=name)

    async def come(group: Any, *call: Any) -> None:
        group.start_soon(*call)
        unfinished = backend.engine.output_processor.get_num_unfinished_requests
        before = unfinished()
        while unfinished() == before:
            await anyio.lowlevel.checkpoint()

    await backend.engine.pause_generation(mode="keep", clear_cache=False)
    async with anyio.create_task_group() as group:
        for name in chats:
            await come(group, one, name)
        for index, state in enumerate(decisions):
            await come(group, backend.decide, decision(f"d{index}", state, salt="together"))
        await backend.engine.resume_generation()
    return outputs


def likelihoods(output: Any) -> list[dict[int, float]]:
    return [
        {token: each.logprob for token, each in position.items()}
        for position in output.outputs[0].logprobs
    ]


LONG = {"short": ids(11, 60), "long": ids(12, 500), "longer": ids(13, 900)}
STATES = [words(20 + index, 100 * (index + 1)) for index in range(4)]


def find_scheduler() -> Any:
    """Find the scheduler in the engine process: whoever calls the worker has it."""
    import inspect

    callers = [frame.frame.f_locals.get("self") for frame in inspect.stack()]
    [scheduler] = {each.scheduler for each in callers if hasattr(each, "scheduler")}
    return scheduler


def watch_shapes(worker: Any) -> None:
    scheduler = find_scheduler()
    scheduler.current_step = scheduler._kept = 0  # what a step is made of depends on them
    stock, seen = worker.execute_model, worker.__dict__.setdefault("shapes", [])

    def execute(planned: Any) -> Any:
        seen.append(list(planned.num_scheduled_tokens.values()))
        return stock(planned)

    worker.execute_model = execute


def shapes(worker: Any) -> list[list[int]]:
    del worker.execute_model
    return worker.__dict__.pop("shapes")


async def test_chat_beside_decisions_is_that_of_an_engine_without_adapter(adapted, tmp_path):
    """Bit for bit, where the steps have the same shapes."""
    found: list[Any] = []
    alone = {name: await talk(adapted, ids, max_tokens=24) for name, ids in LONG.items()}
    plain = await start(base_bundle(tmp_path / "base"), dtype="float32")
    try:
        for backend in (adapted, plain):
            await backend.engine.reset_prefix_cache()
            await backend.engine.collective_rpc(watch_shapes)
            outputs = await together(
                backend, LONG, STATES, max_tokens=24, logprobs=2, ignore_eos=True
            )
            [steps] = await backend.engine.collective_rpc(shapes)
            found.append(({name: likelihoods(outputs[name]) for name in sorted(outputs)}, steps))
            tokens = {name: list(outputs[name].outputs[0].token_ids) for name in LONG}
            assert tokens == alone
    finally:
        await plain.close()
    assert max(len(step) for step in found[0][1]) > len(LONG)  # they did share steps
    assert found[0][1] == found[1][1]
    assert found[0][0] == found[1][0]


async def test_in_bf16_tokens_part_only_where_the_two_best_are_as_good(rounded):
    """The band is what other chats in the batch move, with no decision near."""
    options = {"max_tokens": 24, "logprobs": 5, "ignore_eos": True}
    chats = LONG | {f"c{seed}": ids(seed, 30 + 5 * seed) for seed in range(14, 17)}
    alone = {name: await generate(rounded, ids, **options) for name, ids in chats.items()}
    band, splits = 0.0, 0
    for states in ([], STATES):
        await rounded.engine.reset_prefix_cache()
        beside = await together(rounded, chats, states, **options)
        for name in chats:
            for one, other in zip(likelihoods(alone[name]), likelihoods(beside[name]), strict=True):
                best, second = sorted(one, key=lambda token: -one[token])[:2]
                margin = one[best] - one[second]
                if best != max(other, key=lambda token: other[token]):
                    splits += bool(states)
                    assert margin <= band or not states, (name, margin, band)
                    break
                if not states and second in other:
                    band = max(band, abs(margin - other[best] + other[second]))
    print(f"bf16: two best tokens within {band:.3f}; {splits} of {len(chats)} chats part there")
    assert 0 < band < 0.2


def count_kept(worker: Any) -> tuple[int, ...]:
    """Count what scheduler and worker hold."""
    scheduler = find_scheduler()
    pool = scheduler.kv_cache_manager.block_pool
    return (
        len(scheduler.requests),
        len(scheduler._stops),
        len(scheduler._courses),
        len(worker.model_runner.requests),
        pool.num_gpu_blocks - 1 - pool.get_num_free_blocks(),
    )


async def kept(backend: Any) -> list[int]:
    [counts] = await backend.engine.collective_rpc(count_kept)
    return list(counts)


@pytest.mark.parametrize("how", ["cancelled", "closed"])
async def test_a_chat_that_is_given_up_frees_everything(adapted, how):
    from engine.llm.chat import ChatRequest

    request = ChatRequest(id="c", input_ids=ids(7, 700), max_tokens=3000, ignore_end=True)
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:

            async def listen(reading: bool) -> None:
                async with aclosing(adapted.chat(request)) as tokens:
                    async for _ in tokens:
                        if reading and how == "closed":
                            return
                        if how == "cancelled":
                            group.cancel_scope.cancel()

            group.start_soon(listen, True)
            group.start_soon(listen, False)
            if how == "closed":
                while (await kept(adapted))[0] != 1:
                    await anyio.lowlevel.checkpoint()
                group.cancel_scope.cancel()
        assert adapted.engine.output_processor.get_num_unfinished_requests() == 0
        while await kept(adapted) != [0, 0, 0, 0, 0]:
            await anyio.lowlevel.checkpoint()
    assert await talk(adapted, request.input_ids)


async def test_a_dead_engine_is_noticed_and_ends_decisions(rounded):
    [engine] = rounded.engine.engine_core.resources.engine_manager.processes
    os.kill(engine.pid, signal.SIGKILL)
    await until(lambda: rounded.dead)
    with pytest.raises(EngineFailed, match="the engine process is gone"):
        await rounded.decide(decision("after", "A gate."))
