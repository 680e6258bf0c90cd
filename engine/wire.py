"""Messages as bytes: MessagePack, compressed above a size, checked against what a broker takes."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import Final, TypeVar

import msgspec
import zstandard

from engine.errors import BadRequest, RequestTooLarge

log = logging.getLogger(__name__)

COMPRESS_ABOVE: Final = 1024  # bytes
DECODED_LIMIT: Final = 256 << 20  # bytes; what a compressed message may unpack to
_ENCODING: Final = "Content-Encoding"
_HEADROOM: Final = 1024  # bytes; headers count as payload
_PIECE: Final = 1 << 20  # bytes

T = TypeVar("T")


class _Zstd(threading.local):
    """What compresses: making it takes longer than most messages do, and threads share none."""

    def __init__(self) -> None:
        self.packer = zstandard.ZstdCompressor(level=1)
        self.unpacker = zstandard.ZstdDecompressor()


_zstd = _Zstd()


def pack(message: msgspec.Struct, *, limit: int) -> tuple[bytes, dict[str, str]]:
    """Give a message's bytes and headers.

    Raises:
        BadRequest: A text in it is not valid Unicode.
        RequestTooLarge: It is larger than `limit` bytes even when compressed, or than whoever
            reads it unpacks.
    """
    try:
        data = msgspec.msgpack.encode(message)
    except UnicodeEncodeError as error:
        raise BadRequest(f"the request holds a lone surrogate: {error.reason}") from error
    if len(data) > DECODED_LIMIT:
        raise RequestTooLarge(
            f"the message has {len(data)} bytes, the most is {DECODED_LIMIT}; shorten the state"
        )
    most = limit - _HEADROOM
    large = len(data) > COMPRESS_ABOVE
    packed = _compress(data, most) if large else data
    if len(packed) > most:
        raise RequestTooLarge(
            f"the message has {len(data)} bytes, even compressed more than the broker takes, {most}"
            "; shorten the state or raise max_payload"
        )
    return packed, {_ENCODING: "zstd"} if large else {}


def _compress(data: bytes, most: int) -> bytes:
    """Compress; what becomes larger than `most` bytes is not always compressed to its end."""
    if len(data) <= most:
        return _zstd.packer.compress(data)
    packed, packer = b"", zstandard.ZstdCompressor(level=1).compressobj(size=len(data))
    for start in range(0, len(data), _PIECE):
        packed += packer.compress(memoryview(data)[start : start + _PIECE])
        if len(packed) > most:
            return packed
    return packed + packer.flush()


def unpack(data: bytes, headers: Mapping[str, str] | None, kind: type[T]) -> T:
    """Read a message that `pack` made.

    Raises:
        BadRequest: It is damaged, or unpacks to more than `DECODED_LIMIT` bytes.
    """
    try:
        if headers and headers.get(_ENCODING) == "zstd":
            size = zstandard.frame_content_size(data)
            if not 0 <= size <= DECODED_LIMIT:
                raise BadRequest(f"a message unpacks to {size} bytes, the limit is {DECODED_LIMIT}")
            data = _zstd.unpacker.decompress(data)
        return msgspec.msgpack.decode(data, type=kind)
    except (msgspec.DecodeError, zstandard.ZstdError) as error:
        raise BadRequest(f"a message of the queue cannot be read: {error}") from error


def read(data: bytes, headers: Mapping[str, str] | None, kind: type[T]) -> T | None:
    """Read a message; None, and a line in the log, if it is damaged."""
    try:
        return unpack(data, headers, kind)
    except BadRequest as error:
        log.warning("a message cannot be read", extra={"why": str(error)})
        return None
