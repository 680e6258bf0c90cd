"""Another server as the engine, played by a stub that answers what a test wants."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.contract import Ask, DecisionRequest
from engine.errors import BadRequest, EngineFailed, RecordTooLong
from engine.models import open_model
from engine.records import ask_from_system_one
from engine.remote import parse_remote
from engine.remote_backend import RemoteBackend
from tests.support.stubs import Stub, stub_server

QUESTIONS: dict[str, Any] = {
    "go": {"type": "choice", "instructions": "Where?", "criteria": {"b": "B", "a": None}},
    "wet": {"type": "noul", "instructions": {"is it": "wet"}},
    "how": {"type": "score", "criteria": ["low", None, {"high": 1}]},
}
ANSWERS: dict[str, Any] = {
    "go": {"type": "choice", "choice": "a", "probabilities": {"a": 0.67, "b": 0.34}},
    "wet": {"type": "noul", "noul": 0.25},
    "how": {"type": "score", "score": 1, "probabilities": {"0": 0, "1": 1, "2": 0}},
}


@pytest.fixture
def stub() -> Iterator[Stub]:
    with stub_server() as stub:
        yield stub


def answered(**changes: Any) -> dict[str, Any]:
    usage = {"input_tokens": 40, "output_tokens": 0}
    return {"model": "x", "answers": ANSWERS | changes, "usage": usage}


async def ask(url: str, ask: Ask | None = None) -> Any:
    backend = await RemoteBackend.start(parse_remote(f"systemone:{url}"))
    try:
        request = DecisionRequest(
            id="d",
            attempt=1,
            source="s",
            affinity="a",
            remaining_s=9,
            ask=ask
            or ask_from_system_one({"model": "m", "state": {"x": "é"}, "questions": QUESTIONS}),
        )
        return await backend.decide(request)
    finally:
        await backend.close()


async def test_the_question_arrives_and_the_answer_comes_back(stub: Stub, tmp_path: Path):
    stub.says(answered())
    (tmp_path / "key").write_text("secret\n")
    reply = await ask(f"{stub.url},model=jev-1,key-file={tmp_path / 'key'}")
    ((path, headers, sent),) = stub.seen
    assert path == "/v1/systemone"
    assert headers["authorization"] == "Bearer secret"
    assert sent["model"] == "jev-1"
    assert sent["state"] == '{"x":"é"}'
    assert sent["questions"]["go"]["criteria"] == {"a": None, "b": "B"}
    assert sent["questions"]["wet"] == {
        "type": "noul",
        "instructions": '{"is it":"wet"}',
        "criteria": sent["questions"]["wet"]["criteria"],
    }
    assert sent["questions"]["how"]["criteria"] == ["low", "", {"high": 1}]
    go, wet, how = reply.answers
    assert go.option_ids == ("a", "b")
    assert go.probabilities == pytest.approx((67 / 101, 34 / 101))
    assert wet.probabilities == (0.25, 0.75)
    assert how.probabilities == (0, 1, 0)
    assert (reply.tokens, reply.tokens_reused, reply.fingerprint) == (40, 0, "")


async def test_an_envelope_and_a_route_of_its_own(stub: Stub):
    stub.says({"result": answered(), "success": True, "errors": []})
    assert (await ask(f"{stub.url}/ai/run/clef")).answers
    assert stub.seen[0][0] == "/ai/run/clef"


async def test_a_busy_server_is_asked_again(stub: Stub):
    stub.says({"detail": {"message": "busy"}}, 503, retry_after_ms="1")
    stub.says(b"<html>", 429, retry_after="0.001")
    stub.says(answered())
    assert (await ask(stub.url)).answers
    assert len(stub.seen) == 3
    stub.replies.clear()
    stub.says({"error": "down"}, 529, retry_after_ms="1")
    with pytest.raises(EngineFailed, match=r"5 tries.*529.*down"):
        await ask(stub.url)


@pytest.mark.parametrize(
    ("status", "body", "kind", "said"),
    [
        (422, {"detail": [{"loc": ["body"], "msg": "no such type"}]}, BadRequest, "no such type"),
        (413, {"detail": {"message": "64k"}}, RecordTooLong, "64k"),
        (401, {"detail": {"message": "who?"}}, EngineFailed, "who?"),
        (404, {"errors": [{"message": "no model"}]}, EngineFailed, "no model"),
        (307, b"", EngineFailed, "307"),
    ],
)
async def test_a_refusal_is_final(stub: Stub, status: int, body: Any, kind: type, said: str):
    stub.says(body, status)
    with pytest.raises(kind, match=said) as raised:
        await ask(stub.url)
    assert raised.type is kind
    assert len(stub.seen) == 1


def change(question: str, **values: Any) -> Callable[[], Any]:
    return lambda: answered(**{question: ANSWERS[question] | values})


@pytest.mark.parametrize(
    "reply",
    [
        lambda: b"not json",
        list,
        dict,
        lambda: {"answers": []},
        lambda: answered(go=None),
        change("go", type="noul"),
        change("go", probabilities=None),
        change("go", probabilities={"a": 1.0}),
        change("go", probabilities={"a": "0.5", "b": 0.5}),
        change("go", probabilities={"a": 0.5, "b": 0.3}),
        change("go", probabilities={"a": 1.5, "b": -0.5}),
        change("wet", noul=None),
        change("wet", noul=True),
        change("how", probabilities={"0": 1}),
    ],
)
async def test_what_is_no_answer(stub: Stub, reply: Callable[[], Any]):
    stub.says(reply())
    with pytest.raises(EngineFailed):
        await ask(stub.url)


@pytest.mark.parametrize(
    "spec",
    [
        "",
        "ftp://x",
        "http://",
        "http://a:b@x",
        "http://x,model",
        "http://x,size=3",
        "http://x,window=0",
    ],
)
def test_specs_that_name_no_server(spec: str):
    with pytest.raises(BadRequest, match="--model systemone:"):
        open_model(f"systemone:{spec}")


async def test_nobody_there_and_no_key(tmp_path: Path):
    with pytest.raises(EngineFailed, match="is the server there"):
        await ask("http://127.0.0.1:1")
    for name in ("absent", "empty"):
        (tmp_path / "empty").write_text("\n")
        with pytest.raises(EngineFailed, match=name):
            await ask(f"http://127.0.0.1:1,key-file={tmp_path / name}")


def test_models_of_servers_are_told_apart():
    hashes = {
        open_model(f"systemone:{spec}").hash
        for spec in ("http://a", "http://a:1", "http://a,model=x", "http://a/v1/systemone")
    }
    assert len(hashes) == 3  # the last is the first
