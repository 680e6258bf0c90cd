"""Request bodies: read within limits of size and time, unpacked within limits too."""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator
from typing import Final

import anyio
import zstandard

from runtime.http.problems import Problem, problem

_STEP: Final = 256  # packed bytes at a time: at worst they unpack to a few MiB
_WINDOW: Final = 8 << 20  # bytes of history that a frame may ask for


async def read_body(chunks: AsyncIterator[bytes], *, limit: int, seconds: float) -> bytes:
    """Read a body.

    Raises:
        Problem: 413 beyond `limit` bytes, 408 beyond `seconds`.
    """
    body = bytearray()
    with anyio.move_on_after(seconds) as scope:
        async for chunk in chunks:
            body += chunk
            if len(body) > limit:
                raise _too_large(limit)
    if scope.cancelled_caught:
        raise problem(408, "api_usage_error", f"the body did not arrive in {seconds:g} s")
    return bytes(body)


def unpack(body: bytes, encoding: str, *, limit: int) -> bytes:
    """Undo a Content-Encoding: identity, gzip or zstd, exactly one frame.

    Raises:
        Problem: 415 for another encoding, 400 for a broken frame or bytes behind it, 413 beyond
            `limit` bytes; no more than a few MiB beyond it are ever unpacked.
    """
    match encoding.strip().lower():
        case "" | "identity":
            return body
        case "zstd":
            return _unzstd(body, limit)
        case "gzip" | "x-gzip":
            return _gunzip(body, limit)
        case _:
            raise problem(
                415,
                "api_usage_error",
                f"content encoding {encoding[:40]!r} is not read here; send zstd, gzip or none",
                accept_encoding="zstd, gzip",
            )


def _unzstd(body: bytes, limit: int) -> bytes:
    frame = zstandard.ZstdDecompressor(max_window_size=_WINDOW).decompressobj()
    parts: list[bytes] = []
    size = 0
    try:
        if zstandard.frame_content_size(body) > limit:
            raise _too_large(limit)
        for start in range(0, len(body), _STEP):
            parts.append(frame.decompress(body[start : start + _STEP]))
            size += len(parts[-1])
            if size > limit:
                raise _too_large(limit)
            if frame.eof:
                if frame.unused_data or start + _STEP < len(body):
                    raise _broken("zstd", "there are bytes behind the frame")
                return b"".join(parts)
    except zstandard.ZstdError as error:
        raise _broken("zstd", str(error)) from error
    raise _broken("zstd", "the frame ends early")


def _gunzip(body: bytes, limit: int) -> bytes:
    member = zlib.decompressobj(wbits=31)
    try:
        data = member.decompress(body, limit + 1)
    except zlib.error as error:
        raise _broken("gzip", str(error)) from error
    if len(data) > limit:
        raise _too_large(limit)
    if not member.eof:
        raise _broken("gzip", "the member ends early")
    if member.unused_data:
        raise _broken("gzip", "there are bytes behind the member")
    return data


def _too_large(limit: int) -> Problem:
    return problem(413, "api_usage_error", f"the body has more than {limit} bytes; send less")


def _broken(encoding: str, why: str) -> Problem:
    return problem(400, "api_usage_error", f"the body is no sound {encoding}: {why}")
