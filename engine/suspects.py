"""Decisions that ran alone because workers may have died of them."""

from __future__ import annotations

import hashlib

from nats.errors import Error as NatsError
from nats.js import JetStreamContext
from nats.js.errors import KeyNotFoundError
from nats.js.kv import KeyValue

from engine import streams
from engine.errors import QueueUnavailable


class Suspects:
    """What the workers know of them, in a bucket of the broker."""

    def __init__(self, js: JetStreamContext) -> None:
        self._js = js
        self._bucket: KeyValue | None = None

    async def note(self, source: str, decision: str, *, alone: bool) -> None:
        """Note that a decision is about to run alone, or that it has and nobody died.

        Raises:
            QueueUnavailable: The broker does not answer.
        """
        try:
            await (await self._open()).put(_key(source, decision), b"alone" if alone else b"")
        except (NatsError, TimeoutError) as error:
            self._bucket = None
            raise QueueUnavailable(f"a suspect cannot be noted: {error}") from error

    async def ran_alone(self, source: str, decision: str) -> bool:
        """Tell whether a decision was begun alone and nobody said what became of it.

        Raises:
            QueueUnavailable: The broker does not answer.
        """
        try:
            return (await (await self._open()).get(_key(source, decision))).value == b"alone"
        except KeyNotFoundError:
            return False
        except (NatsError, TimeoutError) as error:
            self._bucket = None
            raise QueueUnavailable(f"suspects cannot be looked up: {error}") from error

    async def _open(self) -> KeyValue:
        if self._bucket is None:
            self._bucket = await self._js.create_key_value(streams.suspects())
        return self._bucket


def _key(source: str, decision: str) -> str:
    """Name a decision in a bucket, whose keys take fewer characters than subjects do."""
    return hashlib.blake2b(f"{source}.{decision}".encode(), digest_size=16).hexdigest()
