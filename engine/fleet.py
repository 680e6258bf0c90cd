"""What live workers say of themselves."""

from __future__ import annotations

import msgspec


class WorkerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What a live worker says of itself."""

    worker: str
    bundle: str
    fingerprint: str
    in_flight: int
    pid: int
    partitions: tuple[int, ...] = ()
    answered: int = 0
    failed: int = 0
    redelivered: int = 0
    tokens_read: int = 0
    tokens_reused: int = 0


class ChatInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Where a live worker chats.

    Attributes:
        worker: Its name.
        url: Its server.
        token: What that server wants as bearer token.
        model: The name of the base weights there.
    """

    worker: str
    url: str
    token: str
    model: str
