from __future__ import annotations

import json
from typing import Any

import pytest

from engine.fleet import ChatInfo
from runtime.http.chat import ChatProxy, choose
from runtime.http.problems import Problem

WORKERS = [
    ChatInfo(worker=f"w{i}", url=f"http://127.0.0.1:{9000 + i}", token="t", model="base")
    for i in range(4)
]


@pytest.fixture
async def proxy():
    proxy = ChatProxy(("mine", "other-name"), ("mine", "clef", "jev-latest"))
    proxy.workers = WORKERS
    yield proxy
    await proxy.close()


def body(**changes: Any) -> bytes:
    messages = [{"role": "user", "content": "Who goes there?"}]
    return json.dumps({"model": "mine", "messages": messages} | changes).encode()


async def test_a_conversation_stays_with_its_worker(proxy: ChatProxy):
    first = {"role": "user", "content": "Who goes there?"}
    turns = [first]
    chosen = set()
    for turn in range(6):
        _, worker = proxy.read(body(messages=turns), caller="")
        chosen.add(worker.worker)
        turns = [
            *turns,
            {"role": "assistant", "content": f"{turn}"},
            {"role": "user", "content": "?"},
        ]
    assert len(chosen) == 1


def test_conversations_are_spread_and_few_move():
    starts = [f"conversation {i}" for i in range(400)]
    before = [choose(WORKERS, start) for start in starts]
    for worker in WORKERS:
        assert 60 < before.count(worker) < 140
    after = [choose(WORKERS[1:], start) for start in starts]
    assert all(b == a for b, a in zip(before, after, strict=True) if b is not WORKERS[0])


async def test_what_is_passed_on(proxy: ChatProxy):
    request, _ = proxy.read(body(model="other-name", temperature=0), caller="alice")
    assert (request["model"], request["temperature"]) == ("base", 0)
    assert request["cache_salt"].startswith("alice ")
    with_salt, _ = proxy.read(body(cache_salt="s"), caller="alice")
    other, _ = proxy.read(body(cache_salt="alice s"), caller="")
    assert len({request["cache_salt"], with_salt["cache_salt"], other["cache_salt"]}) == 3
    assert "cache_salt" not in proxy.read(body(), caller="")[0]


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"{", 400),
        (b"[" * 100_000, 400),
        (b"[]", 400),
        (body(model="clef"), 404),
        (body(model="jev-latest"), 404),
        (body(model="clef@1234"), 404),
        (body(model=["mine"]), 404),
        (body(priority=-1), 400),
        (body(vllm_xargs={"ostinato": "x"}), 400),
        (body(kv_transfer_params={}), 400),
        (body(cache_salt=""), 400),
        (body(cache_salt=3), 400),
    ],
)
async def test_what_is_refused(proxy: ChatProxy, sent: bytes, status: int):
    with pytest.raises(Problem) as raised:
        proxy.read(sent, caller="")
    assert raised.value.status == status
    assert raised.value.body["error"]["message"]


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999"])
async def test_what_json_does_not_have_is_not_passed_on(proxy: ChatProxy, number: str):
    sent = body(logit_bias={"5": 0}).replace(b'"5": 0', f'"5": {number}'.encode())
    request, worker = proxy.read(sent, caller="")
    with pytest.raises(Problem) as raised:
        await proxy.post("/v1/chat/completions", request, worker)
    assert raised.value.status == 400
    assert "not JSON compliant" in raised.value.body["error"]["message"]


async def test_no_worker_chats(proxy: ChatProxy):
    proxy.workers = []
    with pytest.raises(Problem) as raised:
        proxy.read(body(), caller="")
    assert raised.value.status == 503
    assert "retry-after" in raised.value.headers
    gone = ChatInfo(worker="w", url="http://127.0.0.1:1", token="t", model="m")
    with pytest.raises(Problem) as raised:
        await proxy.post("/v1/completions", {}, gone)
    assert raised.value.status == 503
