"""Rights that last a few seconds unless they are renewed, kept in a bucket of the broker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from nats.errors import Error as NatsError
from nats.js import JetStreamContext
from nats.js.errors import KeyWrongLastSequenceError
from nats.js.kv import KeyValue

from engine import streams
from engine.errors import QueueUnavailable

_STREAM = f"KV_{streams.LEASES}"


class Leases:
    """What the workers of one bundle hold; a name is held by one of them at a time."""

    def __init__(self, js: JetStreamContext, bundle: str) -> None:
        self._js = js
        self._bundle = bundle
        self._bucket: KeyValue | None = None
        self._revisions: dict[str, int] = {}

    async def names(self) -> set[str]:
        """Give what is held by anybody now.

        Raises:
            QueueUnavailable: The broker does not answer; so for every method here.
        """
        with self._answering():
            await self._open()
            prefix = f"$KV.{streams.LEASES}.{self._bundle}."
            info = await self._js.stream_info(_STREAM, subjects_filter=f"{prefix}>")
        return {subject.removeprefix(prefix) for subject in info.state.subjects or {}}

    async def show(self, name: str) -> None:
        """Hold a name that nobody else takes, or go on to hold it."""
        with self._answering():
            await (await self._open()).put(f"{self._bundle}.{name}", b"")

    async def take(self, name: str) -> bool:
        """Take a name if nobody holds it; tell whether it is held now."""
        return await self._write(name, 0)

    async def renew(self, name: str) -> bool:
        """Go on to hold a name; tell whether it is still held."""
        return await self._write(name, self._revisions[name])

    async def _write(self, name: str, last: int) -> bool:
        with self._answering():
            bucket = await self._open()
            try:
                # not `create`, which looks again after a refusal: nothing here leaves tombstones
                revision = await bucket.update(f"{self._bundle}.{name}", b"", last=last)
            except KeyWrongLastSequenceError:
                return False
        self._revisions[name] = revision
        return True

    async def give_up(self, name: str) -> None:
        """Let others take a name."""
        with self._answering():
            subject = f"$KV.{streams.LEASES}.{self._bundle}.{name}"
            await self._js.purge_stream(_STREAM, subject=subject)

    async def _open(self) -> KeyValue:
        if self._bucket is None:
            self._bucket = await self._js.create_key_value(streams.leases())
        return self._bucket

    @contextmanager
    def _answering(self) -> Iterator[None]:
        try:
            yield
        except (NatsError, TimeoutError) as error:
            self._bucket = None  # it may be gone: made again at the next try
            raise QueueUnavailable(f"the workers' leases cannot be had: {error}") from error
