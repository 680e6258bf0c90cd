"""The application in this process, in front of the mock engine."""

from __future__ import annotations

import gzip
import json
import logging
import re
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
import zstandard

from engine.fleet import Statistics, WorkerInfo
from runtime.http.app import application
from runtime.http.gateway import Limits
from runtime.http.keys import Keys, make_key
from runtime.http.openapi import EXAMPLE, SystemOneReply
from runtime.logging import configure_logging
from tests.support.engines import DirectEngine, SilentEngine
from tests.support.servers import served

URL = "/v1/systemone"


def request(**changes: Any) -> dict[str, Any]:
    return {**EXAMPLE, **changes}


def question(**changes: Any) -> dict[str, Any]:
    return request(
        questions={"q": {"type": "choice", "criteria": {"a": None, "b": "B"}, **changes}}
    )


async def test_an_answer_has_all_that_clients_read():
    async with served() as (client, _):
        reply = await client.post(URL, json=EXAMPLE)
        assert reply.status_code == 200
        document = msgspec.json.decode(reply.content, type=SystemOneReply)
        assert list(document.answers) == list(EXAMPLE["questions"])
        assert (document.x_form, document.x_record) == ("independent", "neutral")
        assert document.usage.input_tokens == document.x_tokens_read + document.x_tokens_reused
        assert len(reply.headers["x-typesafe-request-id"]) == 32
        again = await client.post(URL + "/", json=request(extra=1, x_other=[2]))
        assert again.json()["answers"] == reply.json()["answers"]
        assert again.headers["x-typesafe-request-id"] != reply.headers["x-typesafe-request-id"]


async def test_form_record_and_session_are_on_request():
    engine = DirectEngine()
    async with served(engine) as (client, _):
        wanted = request(x_form="joint", x_record="release", x_session="s7", x_max_length=99)
        document = (await client.post(URL, json=wanted)).json()
        assert (document["x_form"], document["x_record"]) == ("joint", "release")
        await client.post(URL, json=request(state={"log": ["a", "b"]}))
        await client.post(URL, json=request(state={"log": ["a", "b", "c"]}))
    first, second, third = engine.requests
    assert first.affinity == "/s7"
    assert first.ask.max_length == 99
    assert second.ask.state[: second.ask.public_end] == '{"log":["a","b'
    assert third.ask.state.startswith(second.ask.state[: second.ask.public_end])


FAULTS: dict[str, tuple[Any, int, list[Any]]] = {
    "no json": (b"{", 422, ["body"]),
    "nothing": (b"", 422, ["body"]),
    "not utf-8": (b'"\xff"', 422, ["body"]),
    "a list": (b"[]", 422, ["body"]),
    "nan": (b'{"model":"clef","state":{"odds":NaN}}', 422, ["body", "state", "odds"]),
    "surrogate": (b'{"model":"clef","state":["\\ud83d"]}', 422, ["body", "state", 0]),
    "surrogate as a key": (
        b'{"model":"clef","state":"s","questions":{"\\ud83d":{"type":"noul"}}}',
        422,
        ["body", "questions"],
    ),
    "deep": (b'{"state":' + b"[" * 100_000 + b"]" * 100_000 + b"}", 422, ["body"]),
    "no model": ({"state": "s"}, 422, ["body", "model"]),
    "model of another type": (request(model=3), 422, ["body", "model"]),
    "no state": ({"model": "clef", "questions": {}}, 422, ["body", "state"]),
    "state null": (request(state=None), 422, ["body", "state"]),
    "state number": (request(state=1), 422, ["body", "state"]),
    "no questions": (request(questions={}), 422, ["body", "questions"]),
    "questions as list": (request(questions=[{}]), 422, ["body", "questions"]),
    "empty id": (request(questions={"": {"type": "noul"}}), 422, ["body", "questions", ""]),
    "too many questions": (
        request(questions={f"q{i}": {"type": "noul"} for i in range(513)}),
        422,
        ["body", "questions"],
    ),
    "question null": (request(questions={"q": None}), 422, ["body", "questions", "q"]),
    "no type": (request(questions={"q": {}}), 422, ["body", "questions", "q", "type"]),
    "boolean": (question(type="boolean"), 422, ["body", "questions", "q", "type"]),
    "box": (question(type="box"), 422, ["body", "questions", "q", "type"]),
    "type list": (question(type=["noul"]), 422, ["body", "questions", "q", "type"]),
    "no options": (question(criteria={}), 422, ["body", "questions", "q", "criteria"]),
    "256 options": (
        question(criteria={f"o{i}": None for i in range(256)}),
        422,
        ["body", "questions", "q", "criteria"],
    ),
    "options as list": (question(criteria=["a"]), 422, ["body", "questions", "q", "criteria"]),
    "11 levels": (
        question(type="score", criteria=["x"] * 11),
        422,
        ["body", "questions", "q", "criteria"],
    ),
    "levels as map": (
        question(type="score", criteria={"0": "x"}),
        422,
        ["body", "questions", "q", "criteria"],
    ),
    "description number": (
        question(criteria={"a": 1}),
        422,
        ["body", "questions", "q", "criteria", "a"],
    ),
    "level bool": (
        question(type="score", criteria=["x", True]),
        422,
        ["body", "questions", "q", "criteria", 1],
    ),
    "instructions number": (
        question(instructions=5),
        422,
        ["body", "questions", "q", "instructions"],
    ),
    "images": (request(images=["data:"]), 422, ["body", "images"]),
    "assets": (request(assets={"a": {}}), 422, ["body", "assets"]),
    "form": (request(x_form="both"), 422, ["body", "x_form"]),
    "form list": (request(x_form=["joint"]), 422, ["body", "x_form"]),
    "session": (request(x_session=1), 422, ["body", "x_session"]),
    "length": (request(x_max_length=True), 422, ["body", "x_max_length"]),
    "length of 400 digits": (request(x_max_length=10**399), 422, ["body", "x_max_length"]),
}


@pytest.mark.parametrize("name", FAULTS)
async def test_a_fault_is_named_with_its_place(name: str):
    body, status, place = FAULTS[name]
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    async with served() as (client, _):
        headers = {"content-type": "application/json"}
        reply = await client.post(URL, content=content, headers=headers)
        assert reply.status_code == status, reply.text
        (fault,) = reply.json()["detail"]
        assert fault["loc"] == place
        assert fault["msg"]
        assert fault["type"]
        assert (await client.post(URL, json=EXAMPLE)).status_code == 200


async def test_what_is_no_fault():
    """Things that servers have been seen to refuse or to change."""
    labels = {"é": None, "e\u0301": None, " a ": None, "": None, "𝕏\n": {"x": [1]}, "NaN": "NaN"}
    many = {f"r{i // 15}c{i % 15}": None for i in range(255)}
    accepted = {
        "labels": question(criteria=labels),
        "255": question(criteria=many),
        "one option": question(criteria={"only": "one"}),
        "null": question(type="noul", criteria=None, instructions=None),
        "one side": question(type="noul", criteria={"false": ["no"]}, instructions={"a": 1}),
        "huge integer": request(state={"n": 10**30}),
        "empty state": request(state=""),
        "odd id": request(questions={" \u200b.*>/": {"type": "noul"}}),
        "level null": question(type="score", criteria=[None, "x"]),
        "empty images": request(images=[], assets={}),
    }
    async with served() as (client, _):
        for name, body in accepted.items():
            reply = await client.post(URL, json=body)
            assert reply.status_code == 200, (name, reply.text)
            assert list(reply.json()["answers"]) == list(body["questions"]), name
        answer = (await client.post(URL, json=accepted["labels"])).json()["answers"]["q"]
        assert list(answer["probabilities"]) == list(labels)
        twice = b'{"model":"x","model":"clef","state":"s","questions":{"q":{"type":"noul"}}}'
        headers = {"content-type": "application/json; charset=utf-8"}
        assert (await client.post(URL, content=twice, headers=headers)).status_code == 200


async def test_names_of_the_model():
    async with served(aliases=("mine",)) as (client, gateway):
        listed = (await client.get("/v1/models")).json()
        names = [model["name"] for model in listed["models"]]
        assert names == [model["id"] for model in listed["data"]] == list(gateway.names)
        assert {"clef", "jev-latest", "mine"} < set(names)
        for name in names:
            reply = await client.post(URL, json=request(model=name))
            assert reply.json()["model"] == gateway.name
        reply = await client.post(URL, json=request(model="gpt"))
        assert reply.status_code == 404
        assert reply.json()["detail"]["error_type"] == "not_found"


async def test_other_bodies():
    plain = json.dumps(request(state={"log": [f"step {n}" for n in range(500)]})).encode()
    packed = zstandard.compress(plain)
    sent = {"content-type": "application/json", "content-encoding": "zstd"}
    async with served(limits=Limits(body_bytes=10_000)) as (client, _):
        replies = [
            await client.post(URL, content=content, headers={**sent, "content-encoding": encoding})
            for content, encoding in (
                (plain, "identity"),
                (packed, "zstd"),
                (gzip.compress(plain), "gzip"),
            )
        ]
        first, *others = [reply.json()["answers"] for reply in replies]
        assert others == [first, first]
        bomb = zstandard.compress(b'{"state":"' + b"a" * 10_000_000)
        for content, headers, status in (
            (bomb, sent, 413),
            (b"x" * 10_001, {"content-type": "application/json"}, 413),
            (packed[:-3], sent, 400),
            (packed, {**sent, "content-encoding": "br"}, 415),
            (b"x", {"content-type": "multipart/form-data; boundary=x"}, 415),
            (b"{}", {"content-type": "text/plain"}, 415),
        ):
            reply = await client.post(URL, content=content, headers=headers)
            assert reply.status_code == status
            assert reply.json()["detail"]["error_type"] == "api_usage_error"


async def test_too_many_tokens_are_refused_with_both_numbers():
    async with served(DirectEngine("mock:window=100")) as (client, _):
        reply = await client.post(URL, json=request(state="a" * 4000))
        assert reply.status_code == 413
        told = reply.json()["detail"]
        assert told["error_type"] == "max_tokens_exceeded"
        assert "10" in told["message"]
        assert "100" in told["message"]


async def test_no_worker_no_time_no_such_path():
    async with served(absent=True) as (client, _):
        reply = await client.post(URL, json=EXAMPLE)
        assert reply.status_code == 503
        assert int(reply.headers["retry-after-ms"]) <= 2000
        assert (await client.get("/health")).status_code == 503
        assert (await client.get("/health")).json()["worker"] == "absent"
        assert (await client.get("/health/live")).status_code == 200
    async with served() as (client, _):
        assert (await client.get("/health")).json() == {
            "process": "up",
            "worker": "ready",
            "adapter": "none",
        }
        assert (await client.get("/v1/nothing")).status_code == 404
        assert (await client.get(URL)).status_code == 405
        assert (await client.get(URL)).json()["detail"]["message"]
    async with served(DirectEngine("mock:fail=1")) as (client, _):
        reply = await client.post(URL, json=EXAMPLE)
        assert reply.status_code == 500
        assert reply.json()["detail"]["error_type"] == "internal_error"


async def test_an_engine_that_says_nothing_at_all_is_not_waited_for():
    engine = SilentEngine()
    async with served(engine, limits=Limits(deadline_s=0.05)) as (client, gateway):
        reply = await client.post(URL, json=EXAMPLE)
        assert reply.status_code == 503
        assert "no answer in 0.05 s" in reply.json()["detail"]["message"]
        assert gateway.load.decisions == gateway.load.tokens == 0
    assert len(engine.requests) == 1


async def test_keys_are_asked_for_before_anything_is_unpacked(tmp_path: Path):
    key, entry = make_key("alice")
    (tmp_path / "keys.toml").write_text(entry + "tokens_per_minute = 1000\n")
    engine = DirectEngine()
    async with served(engine, keys=Keys(tmp_path / "keys.toml")) as (client, _):
        garbage = {"content-encoding": "zstd", "content-type": "application/json"}
        assert (await client.post(URL, content=b"x", headers=garbage)).status_code == 403
        for path in ("/v1/models", "/metrics"):
            assert (await client.get(path)).status_code == 403
        wrong = {"authorization": "Bearer nope"}
        reply = await client.post(URL, json=EXAMPLE, headers=wrong)
        assert reply.status_code == 401
        right = {"authorization": f"Bearer {key}"}
        assert (await client.post(URL, json=EXAMPLE, headers=right)).status_code == 200
        assert engine.requests[0].ask.salt == "alice"
        large = request(state="a" * 4000)
        assert (await client.post(URL, json=large, headers=right)).status_code == 429
        assert (await client.get("/health")).status_code == 200


async def test_a_fault_of_ours_is_one_request_s_alone():
    def break_once(request: Any) -> None:
        if request.ask.state == "break":
            raise ZeroDivisionError

    async with served(DirectEngine(on_request=break_once)) as (client, _):
        reply = await client.post(URL, json=request(state="break"))
        assert reply.status_code == 500
        assert reply.json()["detail"]["error_type"] == "internal_error"
        assert (await client.post(URL, json=EXAMPLE)).status_code == 200


async def test_other_sites_are_not_let_in():
    async with served() as (client, _):
        site = {"Origin": "https://elsewhere.example"}
        reply = await client.post(URL, json=EXAMPLE, headers=site)
        assert not [name for name in reply.headers if name.startswith("access-control-")]
        asked = await client.options(URL, headers=site | {"Access-Control-Request-Method": "POST"})
        assert asked.status_code == 405
        assert not [name for name in asked.headers if name.startswith("access-control-")]


async def test_any_bearer_will_do_without_keys():
    async with served() as (client, _):
        reply = await client.post(URL, json=EXAMPLE, headers={"authorization": "Bearer anything"})
        assert reply.status_code == 200


async def test_the_description_for_programs_and_for_people():
    async with served() as (client, _):
        document = (await client.get("/openapi.json")).json()
        assert document["openapi"].startswith("3.1")
        sent = document["paths"]["/v1/systemone"]["post"]["requestBody"]["content"]
        example = sent["application/json"]["example"]
        assert (await client.post(URL, json=example)).status_code == 200
        page = (await client.get("/docs")).text
        for path in document["paths"]:
            assert path in page


async def test_figures():
    async with served() as (client, gateway):
        await client.post(URL, json=EXAMPLE)
        await client.post(URL, json={})
        told = {"bundle": "b", "fingerprint": "f", "in_flight": 2, "pid": 1, "tokens_read": 9}
        one, two = Statistics(cache_used=0.25, chat_tokens=40), Statistics(chat_tokens=7)
        for more in (0, 60):
            one = msgspec.structs.replace(one, chat_tokens=one.chat_tokens + more)
            gateway.metrics.workers.see(
                [
                    WorkerInfo(worker="one", engine=one, **told),
                    WorkerInfo(worker="two", engine=two, **told),
                ]
            )
        text = (await client.get("/metrics")).text
    for line in (
        'ostinato_http_requests_total{route="/v1/systemone",status="200"} 1.0',
        'ostinato_http_requests_total{route="/v1/systemone",status="422"} 1.0',
        'ostinato_http_errors_total{code="validation_error"} 1.0',
        "ostinato_questions_total 3.0",
        "ostinato_decisions_under_way 0.0",
        'ostinato_tokens_total{how="read"} ',
        'ostinato_tokens_total{how="reused"} 0.0',
        "ostinato_queue_seconds_count 1.0",
        "ostinato_engine_seconds_count 1.0",
        "ostinato_engine_steps_total ",
        'ostinato_worker_cache_used{worker="one"} 0.25',
        'ostinato_worker_chat_tokens_total{worker="one"} 100.0',
        'ostinato_worker_chat_tokens_total{worker="two"} 7.0',
        'ostinato_worker_tokens_read_total{worker="two"} 9.0',
    ):
        assert line in text, line
    assert 'cache_used{worker="two"}' not in text
    speed = re.search(r"^ostinato_chat_tokens_per_second (\S+)$", text, re.MULTILINE)
    assert speed is not None
    assert float(speed[1]) > 0


async def test_every_reply_and_every_line_written_for_it_have_the_request_s_id(
    capsys: pytest.CaptureFixture[str],
):
    def complain(request: Any) -> None:
        logging.getLogger("somewhere").warning("odd")
        if request.ask.state == "break":
            raise ZeroDivisionError

    async with served(DirectEngine(on_request=complain)) as (client, _):
        configure_logging(format="json", level=logging.INFO)
        replies = [
            await client.post(URL, json=request(state="break")),
            await client.post(URL, json=EXAMPLE),
            await client.post(URL, json={}),
            await client.post("/v1/chat/completions", json={"messages": []}),
            await client.get("/v1/nothing"),
            await client.get("/health"),
        ]
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    names = [reply.headers["x-typesafe-request-id"] for reply in replies]
    assert len(set(names)) == len(replies)
    for name, reply in zip(names, replies, strict=True):
        [line] = [each for each in lines if each["event"] == "request" and each["request"] == name]
        assert line["status"] == reply.status_code
    assert [each["request"] for each in lines if each["event"] == "odd"] == names[:2]
    assert all("request" in each for each in lines if each["logger"] != "httpx")


async def test_a_client_that_goes_away_takes_its_work_along():
    engine = SilentEngine()
    async with served(engine) as (_, gateway):
        app = application(gateway)
        gone = anyio.Event()
        body = json.dumps(EXAMPLE).encode()
        messages = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def receive() -> dict[str, Any]:
            for message in messages:
                return message
            await gone.wait()
            return {"type": "http.disconnect"}

        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {
            "type": "http",
            "method": "POST",
            "path": URL,
            "headers": [(b"content-type", b"application/json")],
            "query_string": b"",
        }
        async with anyio.create_task_group() as group:
            group.start_soon(app, scope, receive, send)
            while not engine.requests:
                await anyio.lowlevel.checkpoint()
            assert gateway.load.decisions == 1
            gone.set()
        assert sent[0]["status"] == 499
        assert gateway.load.decisions == gateway.load.tokens == 0
