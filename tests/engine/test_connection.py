"""What is published is on its way at once, and comes although the connection breaks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial

import anyio
import pytest

from engine.broker import RunningBroker
from engine.connection import Connection


@pytest.fixture
async def connection(running: RunningBroker) -> AsyncIterator[Connection]:
    connection = await Connection.connect(running.url)
    yield connection
    await connection.close()


def written(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Note what is written from now on, write by write."""
    transport, writes = connection.client._transport, list[bytes]()
    assert transport is not None
    write = transport.writelines

    def note(lines: list[bytes]) -> None:
        writes.append(b"".join(lines))
        write(lines)

    monkeypatch.setattr(transport, "writelines", note)
    return writes


async def test_each_publication_is_written_at_once(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes = written(connection, monkeypatch)
    for number in range(3):
        await connection.client.publish("some.subject", b"%d" % number)
        assert len(writes) == number + 1  # no other task had a turn


async def test_what_is_gathered_is_written_together(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    came = await connection.client.subscribe("some.subject")
    writes = written(connection, monkeypatch)
    publish = partial(connection.client.publish, "some.subject")
    await connection.gather(partial(publish, b"%d" % number) for number in range(3))
    assert len(writes) == 1
    assert [(await came.next_msg(timeout=20)).data for _ in range(3)] == [b"0", b"1", b"2"]


async def test_what_cannot_be_written_comes_when_the_connection_is_back(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    came = await connection.client.subscribe("some.subject")
    await connection.settle()
    back = connection.reconnected
    assert connection.client._transport is not None
    write = connection.client._transport.writelines
    faults = iter([ConnectionResetError()] * 2)  # at once, and when nats-py tries it again

    def broken(lines: list[bytes]) -> None:
        for fault in faults:
            raise fault
        write(lines)

    monkeypatch.setattr(connection.client._transport, "writelines", broken)
    await connection.client.publish("some.subject", b"late")
    with anyio.fail_after(20):
        await back.wait()
        assert (await came.next_msg(timeout=60)).data == b"late"
