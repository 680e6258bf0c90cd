"""Requests that no client would send: none breaks the server, and the next one is answered."""

from __future__ import annotations

import copy
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    response_schema_conformance,
    status_code_conformance,
)

from runtime.http.openapi import EXAMPLE
from tests.support.command import Command
from tests.support.servers import serving

SYSTEMONE = "/v1/systemone"
QUICK, LONG = 250, 5000  # each of two kinds of request


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[httpx.Client, int]]:
    with (
        serving(Command(tmp_path_factory.mktemp("hostile"))) as (url, process),
        httpx.Client(base_url=url, timeout=30) as client,
    ):
        yield client, process.pid


@pytest.fixture(scope="module")
def right(server: tuple[httpx.Client, int]) -> Any:
    return server[0].post(SYSTEMONE, json=EXAMPLE).json()["answers"]


@pytest.fixture(scope="module")
def described(server: tuple[httpx.Client, int]) -> Any:
    return schemathesis.openapi.from_url(f"{server[0].base_url}/openapi.json")


quick = settings(
    max_examples=QUICK, deadline=None, suppress_health_check=list(HealthCheck), database=None
)
CHECKS = [not_a_server_error, response_schema_conformance, status_code_conformance]
MODES = (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)


def check_described(described: Any, data: st.DataObject) -> None:
    operation = described[SYSTEMONE]["POST"]
    mode = data.draw(st.sampled_from(MODES))
    data.draw(operation.as_strategy(generation_mode=mode)).call_and_validate(checks=CHECKS)


@given(st.data())
@quick
def test_what_the_description_allows_and_what_it_does_not(described: Any, data: st.DataObject):
    check_described(described, data)


@pytest.mark.long
@given(st.data())
@settings(quick, max_examples=LONG)
def test_the_description_at_full_count(described: Any, data: st.DataObject):
    check_described(described, data)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["noul", "choice", "score", "\ud83d", "clef", ""]),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4)
    ),
    max_leaves=12,
)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """Give a sound request with a value replaced, taken away or added, or with broken bytes."""
    request = copy.deepcopy(EXAMPLE)
    for _ in range(draw(st.integers(1, 3))):
        place: Any = request
        while isinstance(place, dict) and place and draw(st.booleans()):
            deeper = draw(st.sampled_from(sorted(place)))
            if not isinstance(place[deeper], dict):
                break
            place = place[deeper]
        known = draw(st.sampled_from(sorted(place))) if place else "x"
        key = draw(st.just(known) | st.text(max_size=5))
        if draw(st.booleans()):
            place[key] = draw(json_values)
        else:
            place.pop(key, None)
    body = json.dumps(request).encode()
    if draw(st.integers(0, 4)) == 0:
        at = draw(st.integers(0, len(body)))
        body = body[:at] + draw(st.binary(max_size=4)) + body[at + draw(st.integers(0, 4)) :]
    return body


def check_damaged(server: tuple[httpx.Client, int], right: Any, body: bytes) -> None:
    client, _ = server
    headers = {"content-type": "application/json"}
    reply = client.post(SYSTEMONE, content=body, headers=headers)
    assert reply.status_code in (200, 404, 413, 422), reply.text
    assert reply.json()
    sound = client.post(SYSTEMONE, json=EXAMPLE).json()
    assert sound["answers"] == right


@given(damaged())
@quick
def test_damaged_requests(server: tuple[httpx.Client, int], right: Any, body: bytes):
    check_damaged(server, right, body)


@pytest.mark.long
@given(damaged())
@settings(quick, max_examples=LONG)
def test_damaged_requests_at_full_count(server: tuple[httpx.Client, int], right: Any, body: bytes):
    check_damaged(server, right, body)


def resident(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def test_floods_leave_memory_as_it_was(server: tuple[httpx.Client, int]):
    """Bodies at the limit, refused ones, and connections that say nothing."""
    client, pid = server
    headers = {"content-type": "application/json"}
    large = json.dumps(EXAMPLE | {"state": "x" * (2 << 20)}).encode()

    def flood() -> None:
        for _ in range(10):
            assert client.post(SYSTEMONE, content=large, headers=headers).status_code == 413
            assert client.post(SYSTEMONE, content=large[:-1], headers=headers).status_code == 422

    flood()
    before = resident(pid)
    for _ in range(3):
        flood()
    assert resident(pid) - before < 32 << 20


def raw(server: tuple[httpx.Client, int], data: bytes) -> bytes:
    url = server[0].base_url
    with socket.create_connection((url.host, url.port or 80), timeout=30) as connection:
        connection.sendall(data)
        received = b""
        while part := connection.recv(65536):
            received += part
            if b"\r\n\r\n" in received:
                break
        return received


def test_headers_have_a_limit(server: tuple[httpx.Client, int]):
    start = b"POST /v1/systemone HTTP/1.1\r\nhost: x\r\n"
    many = b"".join(b"x-%d: %s\r\n" % (i, b"y" * 1000) for i in range(100))
    long = b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n"
    for sent in (start + many + b"\r\n", long, b"\x16\x03\x01 no HTTP\r\n\r\n"):
        received = raw(server, sent)
        assert received.startswith(b"HTTP/1.1 400 ")
        assert b"\r\nx-typesafe-request-id: " in received
    lying = start + b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"
    assert raw(server, lying).splitlines()[0].split()[1].startswith(b"4")
    assert server[0].get("/health").status_code == 200
