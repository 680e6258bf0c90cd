"""Downloads from a small server that speaks as much of the hub's protocol as is needed."""

from __future__ import annotations

import hashlib
import json
import shutil
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest

from engine import fetch as module
from engine.errors import BadWeights, HubUnavailable, NotWritten
from engine.fetch import fetch
from engine.release import RELEASES, Release
from tests.support.bundles import ORACLE

pytest.importorskip("huggingface_hub")

SHARD = "model-00001-of-00002.safetensors"
FILES = {
    path.name: path.read_bytes() for path in (ORACLE / "clef").iterdir() if path.name != "README.md"
}
TINY = Release(
    name="tiny",
    repository="someone/tiny",
    revision="0123456789abcdef0123456789abcdef01234567",
    digests={
        name: hashlib.sha256(data).hexdigest()
        for name, data in FILES.items()
        if not name.startswith("model-")
    },
)


class Hub(ThreadingHTTPServer):
    """Serves FILES; `cut` bytes into a shard it hangs up, once."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.requests: list[tuple[str, str, str]] = []
        self.cut = 0
        self.status = 200
        self.sha = TINY.revision
        self.wrong: dict[str, bytes] = {}

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Answers(BaseHTTPRequestHandler):
    server: Hub

    def log_message(self, *_: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        hub = self.server
        hub.requests.append((self.command, self.path, self.headers.get("Range", "")))
        if hub.status != 200:
            self.send_response(hub.status)
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif self.path.startswith("/api/"):
            self._list()
        else:
            self._file(self.path.rsplit("/", 1)[1])

    def _list(self) -> None:
        siblings: list[dict[str, Any]] = []
        for name, data in FILES.items():
            file: dict[str, Any] = {"rfilename": name, "size": len(data)}
            if name.endswith(".safetensors"):
                digest = hashlib.sha256(data).hexdigest()
                file["lfs"] = {"size": len(data), "sha256": digest, "pointerSize": 134}
            siblings.append(file)
        body = json.dumps({"id": TINY.repository, "sha": self.server.sha, "siblings": siblings})
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def _file(self, name: str) -> None:
        data = self.server.wrong.get(name, FILES[name])
        start = int(self.headers.get("Range", "bytes=0-")[len("bytes=") :].split("-")[0])
        self.send_response(206 if start else 200)
        self.send_header("ETag", f'"{hashlib.sha256(data).hexdigest()}"')
        self.send_header("X-Repo-Commit", TINY.revision)
        self.send_header("Content-Length", str(len(data) - start))
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        self.end_headers()
        if self.command == "HEAD":
            return
        cut, self.server.cut = (self.server.cut, 0) if name == SHARD else (0, self.server.cut)
        self.wfile.write(data[start:cut] if cut else data[start:])


@pytest.fixture
def hub() -> Iterator[Hub]:
    server = Hub()
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
    yield server
    server.shutdown()
    server.server_close()


def get(hub: Hub, folder: Path, release: Release = TINY) -> list[tuple[str, int, int, str]]:
    seen: list[tuple[str, int, int, str]] = []
    fetch(release, folder, lambda *args: seen.append(args), endpoint=hub.address)
    return seen


def fetched(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_a_release_arrives_whole(hub: Hub, tmp_path: Path) -> None:
    seen = get(hub, tmp_path / "tiny")
    assert fetched(tmp_path / "tiny") == FILES
    assert {stage for stage, *_ in seen} == {"downloading (MB)", "hashing (MB)"}
    before = len(hub.requests)
    get(hub, tmp_path / "tiny")  # all there: nothing but the list is asked for
    assert [path for _, path, _ in hub.requests[before:]] == [hub.requests[0][1]]


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the hub's library write a file as it comes, not by 10 MB."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 1 << 16)


def shard_ranges(hub: Hub) -> list[str]:
    return [r for verb, path, r in hub.requests if verb == "GET" and path.endswith(SHARD)]


@pytest.mark.usefixtures("small_chunks")
def test_a_broken_connection_is_taken_up(hub: Hub, tmp_path: Path) -> None:
    hub.cut = 100_000
    get(hub, tmp_path / "tiny")
    assert fetched(tmp_path / "tiny") == FILES
    assert shard_ranges(hub) == ["", "bytes=65536-"]


@pytest.mark.usefixtures("small_chunks")
def test_an_interrupted_run_is_taken_up(hub: Hub, tmp_path: Path) -> None:
    def interrupt(stage: str, done: int, total: int, note: str) -> None:
        if note == SHARD and done > 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch(TINY, tmp_path / "tiny", interrupt, endpoint=hub.address)
    assert SHARD not in fetched(tmp_path / "tiny")
    get(hub, tmp_path / "tiny")
    assert fetched(tmp_path / "tiny") == FILES
    first, second = shard_ranges(hub)
    assert first == ""
    assert int(second.removeprefix("bytes=").rstrip("-")) > 1_000_000


def test_an_altered_file_is_removed_and_named(hub: Hub, tmp_path: Path) -> None:
    hub.wrong["config.json"] = FILES["config.json"].replace(b"128", b"129")
    with pytest.raises(BadWeights, match=r"config\.json: it has not the release's SHA-256"):
        get(hub, tmp_path / "tiny")
    assert not (tmp_path / "tiny" / "config.json").exists()
    hub.wrong.clear()
    get(hub, tmp_path / "tiny")
    shard = tmp_path / "tiny" / SHARD
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)  # and so after a download that went wrong
    with pytest.raises(BadWeights, match=SHARD):
        get(hub, tmp_path / "tiny")
    get(hub, tmp_path / "tiny")
    assert fetched(tmp_path / "tiny") == FILES


@pytest.mark.parametrize("status", [401, 404, 429, 503])
def test_a_hub_that_refuses_is_asked_once(status: int, hub: Hub, tmp_path: Path) -> None:
    hub.status = status
    with pytest.raises(HubUnavailable, match=f"someone/tiny: the hub answers {status}; the same"):
        get(hub, tmp_path / "tiny")
    assert len(hub.requests) == 1


def test_an_unreachable_hub_is_one_line(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(HubUnavailable, match="the hub cannot be reached") as caught:
        fetch(RELEASES["clef"], tmp_path, print, endpoint=f"http://127.0.0.1:{port}")
    assert "\n" not in str(caught.value)


def test_another_commit_or_an_incomplete_list_is_refused(hub: Hub, tmp_path: Path) -> None:
    hub.sha = "f" * 40
    with pytest.raises(HubUnavailable, match="the hub gives commit ffff"):
        get(hub, tmp_path / "tiny")
    hub.sha = TINY.revision
    more = msgspec.structs.replace(TINY, digests=TINY.digests | {"preprocessor.json": "0" * 64})
    with pytest.raises(HubUnavailable, match=r"lists no preprocessor\.json"):
        get(hub, tmp_path / "tiny", more)


def test_no_room_is_said_before_anything_is_downloaded(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module.shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(9, 9, 10))
    with pytest.raises(NotWritten, match=r"GB are still to come, 0\.0 GB are free"):
        get(hub, tmp_path / "tiny")
    assert len(hub.requests) == 1
