"""What live workers say of themselves."""

from __future__ import annotations

import msgspec


class Statistics(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine counts beside decisions.

    Attributes:
        cache_used: The share of its cache that what runs holds; None for one without a cache.
        chat_tokens: As many as chats generated.
    """

    cache_used: float | None = None
    chat_tokens: int = 0


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
    engine: Statistics = Statistics()


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
