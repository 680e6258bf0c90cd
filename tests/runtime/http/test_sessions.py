"""What clients asked, kept in a log: replayed to the byte, and put to another model."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.contract import encode_ask
from engine.errors import EngineFailed
from games import UnsupportedGame, View, load_game
from games.systemone import Told
from runtime.http.keys import Keys, make_key
from runtime.http.openapi import EXAMPLE
from runtime.http.sessions import Sessions
from runtime.http.systemone import read
from runtime.http.turns import match_of, turn
from runtime.redecide import redecide_file
from runtime.replay import replay_file
from runtime.requests import derive_again
from store.errors import LogUnavailable
from store.events import DecisionAnswered, DecisionFailed, DecisionRequested, TurnTaken
from store.sqlite import SqliteLog, open_log
from tests.support.engines import DirectEngine, FailingEngine, SilentEngine
from tests.support.servers import served

URL = "/v1/systemone"


@pytest.fixture
async def log(tmp_path: Path) -> AsyncIterator[SqliteLog]:
    log = open_log(tmp_path / "log.db")
    yield log
    await log.close()


def sessions_of(log: SqliteLog, engine: DirectEngine) -> Sessions:
    return Sessions(log, engine.model, deadline_s=9)


def events(log: SqliteLog, match: str, kind: type) -> list[Any]:
    return [each.event for each in log.read(match) if isinstance(each.event, kind)]


async def test_a_session_is_a_match_that_replays_and_is_asked_again(log: SqliteLog):
    engine = DirectEngine()
    odd = {
        "way": {"type": "choice", "criteria": {"ü b": {"made of": ["tin", 1e2]}, "a": None}},
        "": {"type": "noul", "instructions": ["Is it?", 10**30]},
        "how far": {"type": "score", "criteria": [["a"], None, "much"]},
    }
    del odd[""]
    odd["is it"] = {"type": "noul", "instructions": ["Is it?", 10**30], "criteria": {"true": {}}}
    replies: list[Any] = []
    async with served(engine, sessions=sessions_of(log, engine)) as (client, _):
        for number in range(4):
            state = {"log": [f"turn {n}" for n in range(number + 1)]}
            for changes in (
                {"x_session": "seven"},
                {"x_session": "zwölf Löwen", "questions": odd},
                {"x_session": "joint", "x_form": "joint", "x_record": "release"},
                {"x_session": "cut", "x_max_length": 500},
            ):
                reply = await client.post(URL, json=EXAMPLE | {"state": state} | changes)
                assert reply.status_code == 200, reply.text
                replies.append(reply.json())
        await client.post(URL, json=EXAMPLE)
        await client.post(URL, json=EXAMPLE)
    assert log.count() == 5
    seven = match_of("", "seven")
    assert seven == "systemone::seven"
    for reply, event in zip(replies[::4], events(log, seven, DecisionAnswered), strict=True):
        act = reply["answers"]["act"]["probabilities"]
        assert event.answers[0].probabilities == pytest.approx([act["run"], act["wait"]], abs=1e-6)
    report = await replay_file(log.path)
    assert report.identical
    assert (report.matches, report.sessions, report.turns, report.unfinished) == (5, 5, 18, 0)
    again = DirectEngine()
    compared = await redecide_file(log.path, again, source="test")
    assert (compared.decisions, compared.changed, compared.agreement) == (18, 0, 1)
    assert {encode_ask(each.ask) for each in again.requests} == {
        encode_ask(each.ask) for each in engine.requests
    }
    other = await redecide_file(log.path, DirectEngine("mock:seed=2"), source="test")
    assert other.decisions == 18
    assert other.changed > 0


async def test_a_text_that_grows_is_written_once(log: SqliteLog):
    engine = DirectEngine()
    async with served(engine, sessions=sessions_of(log, engine)) as (client, _):
        for number in range(1, 30):
            state = {"log": ["a step north " * 20] * number}
            await client.post(URL, json=EXAMPLE | {"state": state, "x_session": "s"})
    actions = [event.action for event in events(log, match_of("", "s"), TurnTaken)]
    assert len(actions) == 29
    assert max(map(len, actions)) < 300
    assert (await replay_file(log.path)).identical


async def test_another_process_goes_on_with_the_match(log: SqliteLog):
    engine = DirectEngine()
    for _ in range(2):
        async with served(engine, sessions=sessions_of(log, engine)) as (client, _):
            for state in ("a", "ab"):
                body = EXAMPLE | {"state": state, "x_session": "s"}
                assert (await client.post(URL, json=body)).status_code == 200
    assert log.count() == 1
    report = await replay_file(log.path)
    assert (report.identical, report.turns) == (True, 4)


async def test_keys_have_sessions_of_their_own(log: SqliteLog, tmp_path: Path):
    engine, entries = DirectEngine(), [make_key(name) for name in ("alice", "bob")]
    (tmp_path / "keys.toml").write_text("".join(entry for _, entry in entries))
    keys = Keys(tmp_path / "keys.toml")
    async with served(engine, sessions=sessions_of(log, engine), keys=keys) as (client, _):
        for key, _ in entries:
            headers = {"authorization": f"Bearer {key}"}
            body = EXAMPLE | {"x_session": "s"}
            assert (await client.post(URL, json=body, headers=headers)).status_code == 200
    assert {summary.match for summary in log.matches()} == {
        "systemone:alice:s",
        "systemone:bob:s",
    }
    assert (await replay_file(log.path)).identical


async def test_requests_of_one_session_at_once(log: SqliteLog):
    engine = DirectEngine("mock:delay_ms=5")
    async with served(engine, sessions=sessions_of(log, engine)) as (client, _):

        async def ask(number: int) -> None:
            body = EXAMPLE | {"state": f"it is {number}", "x_session": "s"}
            assert (await client.post(URL, json=body)).status_code == 200

        async with anyio.create_task_group() as group:
            for number in range(40):
                group.start_soon(ask, number)
    assert len(events(log, match_of("", "s"), DecisionAnswered)) == 40
    report = await replay_file(log.path)
    assert (report.identical, report.turns) == (True, 40)


async def test_failures_are_kept_and_refusals_are_not(log: SqliteLog):
    engine = FailingEngine(EngineFailed("it broke"), lambda number: number == 1)
    async with served(engine, sessions=sessions_of(log, engine)) as (client, _):
        codes = [
            (await client.post(URL, json=EXAMPLE | changes)).status_code
            for changes in (
                {"x_session": "s"},
                {"x_session": "s"},
                {"x_session": "s"},
                {"x_session": "s", "state": None},
                {"x_session": "s", "model": "other"},
            )
        ]
    assert codes == [200, 500, 200, 422, 404]
    [failed] = events(log, match_of("", "s"), DecisionFailed)
    assert (failed.code, failed.message) == ("engine/failed", "it broke")
    assert len(events(log, match_of("", "s"), DecisionAnswered)) == 2
    report = await redecide_file(log.path, DirectEngine(), source="test")
    assert (report.decisions, report.unanswered) == (2, 1)
    assert (await replay_file(log.path)).identical


async def test_a_client_that_goes_away_is_on_record(
    log: SqliteLog, monkeypatch: pytest.MonkeyPatch
):
    async def leave_when(engine: DirectEngine, left: Callable[[], bool]) -> None:
        async with (
            served(engine, sessions=sessions_of(log, engine)) as (client, _),
            anyio.create_task_group() as group,
        ):
            group.start_soon(lambda: client.post(URL, json=EXAMPLE | {"x_session": "s"}))
            while not left():
                await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()

    engine = SilentEngine()
    await leave_when(engine, lambda: bool(engine.requests))
    [failed] = events(log, match_of("", "s"), DecisionFailed)
    assert failed.message == "the client went away"

    append, begun = log.append, []

    async def append_slowly(*args: Any, **kwargs: Any) -> int:
        begun.append(args)
        for _ in range(100):
            await anyio.lowlevel.checkpoint()
        return await append(*args, **kwargs)

    monkeypatch.setattr(log, "append", append_slowly)
    await leave_when(DirectEngine(), lambda: bool(begun))  # with the answer on its way to the log
    assert len(events(log, match_of("", "s"), DecisionAnswered)) == 1
    assert (await replay_file(log.path)).identical


async def test_a_log_that_cannot_be_written_is_said_and_disturbs_nothing_else(
    log: SqliteLog, monkeypatch: pytest.MonkeyPatch
):
    engine = DirectEngine()
    full = True
    append = log.append

    async def refuse(*args: Any, **kwargs: Any) -> int:
        if full:
            raise LogUnavailable("log.db: the disk is full; free some space")
        return await append(*args, **kwargs)

    monkeypatch.setattr(log, "append", refuse)
    async with served(engine, sessions=sessions_of(log, engine)) as (client, _):
        body = EXAMPLE | {"x_session": "s"}
        for _ in range(2):
            reply = await client.post(URL, json=body)
            assert reply.status_code == 503
            assert "the disk is full" in reply.json()["detail"]["message"]
            assert int(reply.headers["retry-after-ms"]) <= 2000
        assert (await client.post(URL, json={})).status_code == 422
        assert (await client.get("/health")).status_code == 200
        assert 'code="store/unavailable"} 2.0' in (await client.get("/metrics")).text
        full = False
        assert (await client.post(URL, json=body)).status_code == 200
        assert (await client.post(URL, json=body)).status_code == 200
    assert (await replay_file(log.path)).turns == 2


async def test_what_is_remembered_is_bounded(log: SqliteLog, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("runtime.http.sessions._KEPT", 1000)
    engine = DirectEngine()
    sessions = sessions_of(log, engine)
    async with served(engine, sessions=sessions) as (client, _):
        for number in range(30):
            body = EXAMPLE | {"state": "x" * 300, "x_session": f"s{number % 10}"}
            assert (await client.post(URL, json=body)).status_code == 200
    assert len(sessions._sessions) <= 4
    report = await replay_file(log.path)
    assert (report.identical, report.matches, report.turns) == (True, 10, 30)


def test_such_a_match_is_not_played():
    with pytest.raises(UnsupportedGame, match="replayed"):
        load_game("systemone")


texts = st.text(st.characters(codec="utf-8"), max_size=40)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
described = texts | st.dictionaries(texts, values, max_size=3) | st.lists(values, max_size=3)
questions = st.one_of(
    st.fixed_dictionaries(
        {
            "type": st.just("choice"),
            "criteria": st.dictionaries(texts, st.none() | described, min_size=1, max_size=4),
        },
        optional={"instructions": st.none() | described},
    ),
    st.fixed_dictionaries(
        {
            "type": st.just("score"),
            "criteria": st.lists(st.none() | described, min_size=1, max_size=4),
        },
    ),
    st.fixed_dictionaries(
        {"type": st.just("noul")},
        optional={"criteria": st.fixed_dictionaries({}, optional={"true": described})},
    ),
)


@given(
    described,
    texts,
    st.dictionaries(texts.filter(bool), questions, min_size=1, max_size=4),
    st.sampled_from(["independent", "joint"]),
)
def test_every_request_can_be_made_again(state: Any, before: str, asked: Any, form: str):
    body = {"model": "clef", "state": state, "questions": asked, "x_form": form}
    ask = read(json.dumps(body).encode(), models=["clef"], caller="").ask
    told = Told(before, 0)
    after, [taken, requested] = turn(
        told, ask, match="m", version=1, model=DirectEngine().model, deadline_s=9
    )
    assert told.apply(taken.action) == after
    assert after.view(0) == View(ask.state[: ask.public_end], ask.state[ask.public_end :])
    assert isinstance(requested, DecisionRequested)
    assert derive_again(after.view(0), requested).ask == ask
    assert derive_again(after.view(0), requested).sha256 == requested.sha256
