from __future__ import annotations

import hashlib
from typing import Any

import msgspec
import pytest

from games.questions import Answer, choice, noul
from games.questions import Option as GameOption
from store import chain, codec
from store.codec import decode, encode
from store.errors import BadEvent, CorruptLog, NewerSchema
from store.events import (
    SCHEMA,
    ActionRefused,
    AnswerDiscarded,
    ChanceDrawn,
    DecisionAnswered,
    DecisionFailed,
    DecisionRequested,
    EpochStarted,
    Event,
    MatchEnded,
    MatchPaused,
    TurnTaken,
)
from store.testing import ended, started, turn

H = "ab" * 32
EVERY_KIND: list[Event] = [
    started(seed=2**63 + 1),
    ChanceDrawn(outcome="deal J", draw=0.1 + 0.2, state_hash=H, views=(H,)),
    DecisionRequested(
        decision="d1",
        seat=0,
        part=1,
        questions=(
            choice("action", "Which?", (GameOption("a"), GameOption("b", "far", ("r", "c")))),
            noul("low", "Is energy low?"),
        ),
        form="independent",
        record="neutral",
        public_end=10,
        length=300,
        sha256=H,
        deadline_s=30.0,
        fallback="pause",
        bundle="0123456789ab",
        option_texts=(('{"option_id":"a"}', '{"option_id":"b"}'), ()),
        max_length=900,
    ),
    DecisionAnswered(
        decision="d1",
        attempt=1,
        answers=(Answer("action", (1e-300, 1.0)), Answer("low", (0.5, 0.5))),
        tokens_read=100,
        tokens_reused=20,
        queue_ms=0.1,
        engine_ms=5.0,
        total_ms=5.5,
        fingerprint="f",
    ),
    DecisionFailed(decision="d1", code="engine/expired", message="late"),
    AnswerDiscarded(decision="d1", reason="late"),
    ActionRefused(seat=1, action="z", message="no"),
    TurnTaken(seat=1, action="a", how="decision", state_hash=H, views=(H,), decision="d1"),
    EpochStarted(epoch=1, state_hash=H, views=(H,)),
    MatchPaused(reason="no worker"),
    ended(),
]


@pytest.mark.parametrize("event", EVERY_KIND, ids=lambda event: type(event).__name__)
def test_every_event_reads_back_equal_and_its_bytes_are_canonical(event: Event) -> None:
    payload = encode(event)
    assert decode(SCHEMA, payload) == event
    assert encode(decode(SCHEMA, payload)) == payload


def test_every_kind_of_event_is_tried() -> None:
    assert {type(event) for event in EVERY_KIND} == set(Event.__args__)


def test_the_bytes_of_an_event_stay_what_they_are() -> None:
    # These bytes are in logs: if this fails, old logs no longer verify.
    payload = encode(MatchEnded(end="truncated", returns=(0.5, -0.5), reason="too long"))
    assert payload == (
        b'{"type":"match_ended","end":"truncated","returns":[0.5,-0.5],"reason":"too long"}'
    )
    before = bytes(range(32))
    numbers = b"".join(number.to_bytes(8, "big") for number in (7, 1, 1_700_000_000_000, 2))
    expected = hashlib.sha256(before + numbers + b"m1" + payload).digest()
    assert chain.link(before, b"m1", 7, 1, 1_700_000_000_000, payload) == expected


def test_a_value_of_another_type_is_refused() -> None:
    wrong: Any = "north"
    with pytest.raises(BadEvent, match=r"\$\.seat"):
        encode(ActionRefused(seat=wrong, action="a", message=""))


def test_an_older_event_is_read_through_its_upcasters(monkeypatch: pytest.MonkeyPatch) -> None:
    payload = encode(turn(3)).replace(b'"action"', b'"move"')
    monkeypatch.setattr(codec, "SCHEMA", SCHEMA + 2)
    monkeypatch.setitem(codec.UPCASTERS, SCHEMA, lambda f: {**f, "action": f.pop("move")})
    monkeypatch.setitem(codec.UPCASTERS, SCHEMA + 1, lambda f: {**f, "note": "old"})
    assert decode(SCHEMA, payload) == turn(3, note="old")


def test_a_newer_event_says_that_an_upgrade_is_needed() -> None:
    with pytest.raises(NewerSchema, match=r"match m, version 4: .*upgrade"):
        chain.event_of("m", 4, SCHEMA + 1, encode(turn(0)))


@pytest.mark.parametrize("payload", [b"", b"{}", b'{"type":"nothing"}', b'{"type":"\xff"}'])
def test_bytes_that_are_no_event_are_damage(payload: bytes) -> None:
    with pytest.raises(CorruptLog, match="match m, version 4"):
        chain.event_of("m", 4, SCHEMA, payload)


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e400", "1" + "0" * 400])
def test_numbers_that_no_float_holds_are_damage(number: str) -> None:
    payload = encode(turn(3))
    other = payload.replace(b'"draw":0.2', f'"draw":{number}'.encode())
    assert other != payload
    with pytest.raises(CorruptLog, match="match m, version 4: the event cannot be read"):
        chain.event_of("m", 4, SCHEMA, other)


def test_a_whole_number_that_no_float_holds_is_refused() -> None:
    with pytest.raises(BadEvent, match=r"out of range.*\$\.draw"):
        encode(msgspec.structs.replace(turn(3), draw=10**400))


def test_a_schema_that_never_was_is_damage() -> None:
    with pytest.raises(CorruptLog, match="match m, version 4"):
        chain.event_of("m", 4, 0, encode(turn(0)))
