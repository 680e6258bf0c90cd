from __future__ import annotations

import gzip
import tracemalloc
from collections.abc import AsyncIterator

import anyio
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from runtime.http.bodies import read_body, unpack
from runtime.http.problems import Problem

LIMIT = 1 << 20
PACK = {"zstd": zstandard.compress, "gzip": gzip.compress, "identity": bytes}


def refused(body: bytes, encoding: str, *, limit: int = LIMIT) -> int:
    with pytest.raises(Problem) as raised:
        unpack(body, encoding, limit=limit)
    assert raised.value.body["detail"]["message"]
    return raised.value.status


@given(st.binary(max_size=5000), st.sampled_from(sorted(PACK)))
def test_what_was_packed_comes_out(body: bytes, encoding: str):
    assert unpack(PACK[encoding](body), encoding, limit=LIMIT) == body


@pytest.mark.parametrize("encoding", ["zstd", "gzip"])
def test_the_limit_is_that_of_the_unpacked(encoding: str):
    full = PACK[encoding](bytes(LIMIT))
    assert len(unpack(full, encoding, limit=LIMIT)) == LIMIT
    assert refused(full, encoding, limit=LIMIT - 1) == 413


@pytest.mark.parametrize("sized", [True, False])
def test_a_small_body_that_would_be_gigabytes_takes_no_memory(sized: bool):
    zeros = bytes(1 << 24)
    packer = zstandard.ZstdCompressor(write_content_size=sized).compressobj(
        size=len(zeros) * 64 if sized else -1
    )
    bomb = b"".join(packer.compress(zeros) for _ in range(64)) + packer.flush()
    assert len(bomb) < 200_000
    tracemalloc.start()
    try:
        assert refused(bomb, "zstd") == 413
        assert tracemalloc.get_traced_memory()[1] < 40 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("encoding", ["zstd", "gzip"])
@pytest.mark.parametrize("damage", ["cut", "twice", "behind", "nothing", "other"])
def test_exactly_one_sound_frame(encoding: str, damage: str):
    frame = PACK[encoding](b"a body of some length" * 50)
    body = {
        "cut": frame[:-1],
        "twice": frame + frame,
        "behind": frame + b"x",
        "nothing": b"",
        "other": b"\x00" * 100,
    }[damage]
    assert refused(body, encoding) == 400


def test_a_frame_may_not_ask_for_a_huge_history():
    parameters = zstandard.ZstdCompressionParameters(window_log=27, write_content_size=0)
    packer = zstandard.ZstdCompressor(compression_params=parameters)
    obj = packer.compressobj()
    assert refused(obj.compress(b"small") + obj.flush(), "zstd") == 400


@pytest.mark.parametrize("encoding", ["br", "deflate", "zstd, gzip", "compress"])
def test_other_encodings(encoding: str):
    assert refused(b"{}", encoding) == 415


async def test_bodies_arrive_in_time_and_size():
    async def chunks(*parts: bytes) -> AsyncIterator[bytes]:
        for part in parts:
            yield part

    async def never() -> AsyncIterator[bytes]:
        yield b"{"
        await anyio.sleep_forever()

    assert await read_body(chunks(b"ab", b"", b"c"), limit=3, seconds=60) == b"abc"
    for stream, status in ((chunks(b"ab", b"cd"), 413), (never(), 408)):
        with pytest.raises(Problem) as raised:
            await read_body(stream, limit=3, seconds=0.05 if status == 408 else 60)
        assert raised.value.status == status
