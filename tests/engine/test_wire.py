from __future__ import annotations

import contextlib

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from engine import wire
from engine.contract import DecisionRequest
from engine.errors import BadRequest, RequestTooLarge
from tests.support.queues import request

LIMIT = 1 << 20

texts = st.text(st.characters(exclude_categories=("Cs",)))


@given(texts, texts, st.integers(1, 2000), st.sampled_from([LIMIT, 6000]))
def test_what_is_packed_is_unpacked(state: str, decision: str, times: int, limit: int) -> None:
    sent = request(decision, state=state * times)
    data, headers = wire.pack(sent, limit=limit)
    assert wire.unpack(data, headers, DecisionRequest) == sent


def test_large_messages_are_compressed_and_small_ones_are_not() -> None:
    small, none = wire.pack(request(state="x"), limit=LIMIT)
    large, headers = wire.pack(request(state="x" * 900_000), limit=LIMIT)
    assert not none
    assert headers
    assert len(large) < 10_000
    assert len(small) < wire.COMPRESS_ABOVE


def test_a_message_over_the_limit_is_refused_with_both_numbers() -> None:
    data, _ = wire.pack(request(), limit=LIMIT)
    exact = len(data) + 1024  # headers count as payload
    assert wire.pack(request(), limit=exact)[0] == data
    with pytest.raises(RequestTooLarge, match=rf"{len(data)} bytes.* takes, {len(data) - 1}"):
        wire.pack(request(), limit=exact - 1)


def test_a_lone_surrogate_is_refused() -> None:
    with pytest.raises(BadRequest, match="surrogate"):
        wire.pack(request(state="\ud800"), limit=LIMIT)


@given(st.binary(max_size=200), st.booleans())
def test_damaged_bytes_are_refused_by_type(data: bytes, compressed: bool) -> None:
    headers = {"Content-Encoding": "zstd"} if compressed else None
    with pytest.raises(BadRequest):
        wire.unpack(data, headers, DecisionRequest)


@given(st.data())
def test_a_message_with_a_flipped_byte_is_refused_or_is_a_message(data: st.DataObject) -> None:
    packed, headers = wire.pack(request(state="abcdefgh" * 300), limit=LIMIT)
    place = data.draw(st.integers(0, len(packed) - 1))
    flipped = bytearray(packed)
    flipped[place] ^= data.draw(st.integers(1, 255))
    with contextlib.suppress(BadRequest):
        assert isinstance(wire.unpack(bytes(flipped), headers, DecisionRequest), DecisionRequest)


def test_what_would_unpack_to_too_much_is_refused_before_it_is_unpacked() -> None:
    bomb = zstandard.compress(bytes(wire.DECODED_LIMIT + 1))
    with pytest.raises(BadRequest, match=str(wire.DECODED_LIMIT)):
        wire.unpack(bomb, {"Content-Encoding": "zstd"}, DecisionRequest)


def test_what_nobody_would_unpack_is_refused_where_it_is_packed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(wire, "DECODED_LIMIT", 5000)
    wire.pack(request(state="x" * 4000), limit=LIMIT)
    with pytest.raises(RequestTooLarge, match=r"\d{4} bytes, the most is 5000"):
        wire.pack(request(state="x" * 5000), limit=LIMIT)
