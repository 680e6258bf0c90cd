"""Chat and decisions from one engine: a real vLLM behind `ostinato serve`, OpenAI's own client."""

from __future__ import annotations

import itertools
import re
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from runtime.http.openapi import EXAMPLE
from tests.support.bundles import adapter_bundle
from tests.support.command import Command, wait_for
from tests.support.servers import serving

pytest.importorskip("vllm")
openai = pytest.importorskip("openai")

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(300)]

MODEL = "oracle-base-and-adapter"
ON = {"ignore_eos": True}
MESSAGES = [{"role": "user", "content": "Is the gate open?"}]


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> Command:
    return Command(tmp_path_factory.mktemp("chat"))


@pytest.fixture(scope="module")
def server(command: Command) -> Iterator[str]:
    bundle = adapter_bundle(command.folder / "bundle")
    with serving(
        command, "--dtype", "float32", "--deadline", 300, model=str(bundle.path), within_s=240
    ) as (url, _):
        with httpx.Client(base_url=url) as client:
            wait_for(lambda: chats(client), within_s=60)
        yield url
    command.kill_rest()


def chats(client: httpx.Client) -> bool:
    reply = client.post("/v1/completions", json={"prompt": "a", "max_tokens": 1}, timeout=60)
    return reply.status_code == 200


@pytest.fixture
def client(server: str) -> Iterator[Any]:
    with openai.OpenAI(base_url=f"{server}/v1", api_key="any", max_retries=0) as client:
        yield client


def test_openais_client(client: Any):
    settings = {"model": MODEL, "messages": MESSAGES, "max_tokens": 12, "temperature": 0}
    whole = client.chat.completions.create(**settings)
    assert whole.usage.completion_tokens > 0
    parts = client.chat.completions.create(**settings, stream=True)
    text = "".join(part.choices[0].delta.content or "" for part in parts if part.choices)
    assert text == whole.choices[0].message.content
    assert MODEL in {model.id for model in client.models.list()}
    for name in ("clef", "jev-latest", "other"):
        with pytest.raises(openai.NotFoundError):
            client.chat.completions.create(**settings | {"model": name})


def figure(server: str, name: str) -> float:
    text = httpx.get(f"{server}/metrics", timeout=60).text
    found = re.search(rf"^{name}(?:{{.*}})? (\S+)$", text, re.MULTILINE)
    return float(found[1]) if found else -1.0


def settle(server: str) -> None:
    """Return when the server's figures of its worker are from after this call."""
    assert httpx.post(f"{server}/v1/systemone", json=EXAMPLE, timeout=90).status_code == 200
    text = httpx.get(f"{server}/metrics", timeout=60).text
    found = re.search(r'requests_total{route="/v1/systemone",status="200"} (\S+)', text)
    assert found is not None
    answered = float(found[1])
    wait_for(lambda: figure(server, "ostinato_worker_answered_total") >= answered, within_s=60)


def test_what_the_worker_counts(client: Any, server: str):
    health = httpx.get(f"{server}/health").json()
    assert health == {"process": "up", "worker": "ready", "adapter": "acting"}
    before = figure(server, "ostinato_worker_chat_tokens_total")
    seen = threading.Event()

    def talk() -> None:
        while not seen.is_set():
            client.completions.create(model=MODEL, prompt="on", max_tokens=50, extra_body=ON)

    with ThreadPoolExecutor(1) as pool:
        pool.submit(talk)
        try:
            wait_for(lambda: figure(server, "ostinato_worker_cache_used") > 0, within_s=60)
            wait_for(lambda: figure(server, "ostinato_chat_tokens_per_second") > 0, within_s=60)
        finally:
            seen.set()
    settle(server)
    counted = figure(server, "ostinato_worker_chat_tokens_total")
    client.completions.create(model=MODEL, prompt="on", max_tokens=21, extra_body=ON)
    settle(server)
    assert figure(server, "ostinato_worker_chat_tokens_total") == counted + 21 > before + 21


def test_words_and_answers_are_those_without_the_other(client: Any, server: str):
    def words() -> str:
        reply = client.completions.create(
            model=MODEL, prompt="The gate is", max_tokens=40, temperature=0
        )
        return reply.choices[0].text

    def decision(number: int) -> Any:
        state = f"The server room is on fire. {'It is hot. ' * 20 * number}"
        reply = httpx.post(f"{server}/v1/systemone", json=EXAMPLE | {"state": state}, timeout=90)
        assert reply.status_code == 200, reply.text
        return [
            round(a.get("noul", a.get("confidence")), 4) for a in reply.json()["answers"].values()
        ]

    alone = words()
    answers = [decision(number) for number in range(4)]
    with ThreadPoolExecutor(6) as pool:
        said = [pool.submit(words) for _ in range(2)]
        decided = [pool.submit(decision, number) for number in range(4)]
        assert [each.result() for each in said] == [alone] * 2
        for each, answer in zip(decided, answers, strict=True):
            assert each.result() == pytest.approx(answer, abs=2e-4)


def test_a_reader_that_goes_away_stops_the_writing(client: Any, server: str):
    with client.completions.create(
        model=MODEL,
        prompt="on and on",
        max_tokens=800,
        stream=True,
        extra_body={"ignore_eos": True},
    ) as stream:
        next(iter(stream))
    # one that is given up leaves the engine to others at once
    client.completions.create(model=MODEL, prompt="The gate", max_tokens=2)
    reply = httpx.post(f"{server}/v1/systemone", json=EXAMPLE, timeout=90)
    assert reply.status_code == 200


def test_a_decision_agent_plays_a_chat_agent_on_one_worker(command: Command, server: str):
    """The model is random: what it writes is no label, so the match's fallback chooses."""
    played = command(
        *("play", "tictactoe", "--matches", 1, "--seed", 1, "--json", "--fallback", "random"),
        *("--seat", "decision", "--seat", f"chat:{server}", "--log", "both.db"),
        *("--model", f"systemone:{server},model=clef", "--deadline", 60),
        within_s=120,
    )
    assert played.code == 0, played
    chats, decisions = played.document["chats"], played.document["decisions"]
    assert decisions["answered"] > 0
    assert chats["answers"] == 2 * decisions["fallback"] == decisions["refused"] > 0
    assert chats["tokens_read"] > chats["answers"] * 100
    assert chats["p50_ms"] > 0
    assert command("replay", "both.db").code == 0


CONNECTIONS, WORDS = 64, 6


async def keep_busy(server: str, *, seconds: float) -> dict[str, list[float]]:
    """Ask and chat over all connections; every reply has to be that of its own request, whole."""
    took: dict[str, list[float]] = {"decision": [], "chat": []}
    until = time.monotonic() + seconds

    async def decide(client: httpx.AsyncClient, name: str) -> None:
        kinds = {
            "odds": {"type": "noul"},
            name: {"type": "choice", "criteria": {name: "", "b": ""}},
        }
        body = {"model": "clef", "state": f"The gate of {name} is shut.", "questions": kinds}
        reply = await client.post("/v1/systemone", json=body)
        assert reply.status_code == 200, reply.text
        answers = reply.json()["answers"]
        assert list(answers) == list(kinds)
        assert list(answers[name]["probabilities"]) == [name, "b"]

    async def chat(client: httpx.AsyncClient, name: str) -> None:
        body = {"prompt": f"The gate of {name}", "max_tokens": WORDS, **ON}
        reply = await client.post("/v1/completions", json=body)
        assert reply.status_code == 200, reply.text
        assert reply.json()["usage"]["completion_tokens"] == WORDS

    async def connection(number: int) -> None:
        kind, ask = ("chat", chat) if number % 2 else ("decision", decide)
        async with httpx.AsyncClient(base_url=server, timeout=250) as client:
            for turn in itertools.count():
                if turn and time.monotonic() > until:  # each connection asks once at least
                    return
                began = time.monotonic()
                await ask(client, f"{number}-{turn}-{secrets.token_hex(4)}")
                took[kind].append(time.monotonic() - began)

    async with anyio.create_task_group() as group:
        for number in range(CONNECTIONS):
            group.start_soon(connection, number)
    return took


@pytest.mark.parametrize("seconds", [10, pytest.param(60, marks=pytest.mark.long)])
async def test_many_at_once(server: str, seconds: float):
    """Nothing is lost, nothing is answered twice."""
    names = ("worker_answered", "worker_failed", "worker_redelivered", "worker_chat_tokens")
    names = tuple(f"ostinato_{name}_total" for name in names)
    settle(server)
    before = {name: figure(server, name) for name in names}
    took = await keep_busy(server, seconds=seconds)
    wanted = (len(took["decision"]), 0, 0, WORDS * len(took["chat"]))

    settle(server)
    counted = tuple(figure(server, name) - before[name] for name in names)
    assert counted == (wanted[0] + 1, *wanted[1:])
    for kind, times in took.items():
        assert len(times) >= CONNECTIONS // 2
        p50, p99 = (sorted(times)[int(len(times) * share)] for share in (0.5, 0.99))
        print(f"{kind}: {len(times)} in {seconds} s, p50 {p50:.3f} s, p99 {p99:.3f} s")


def test_the_workers_door(command: Command, server: str):
    """What its port says to those without the token, and that no other route is behind it."""
    ports = {
        int(line.split()[1].split(":")[1], 16)
        for pid, name in command.running().items()
        if "engine.worker" in name
        for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]
        if line.split()[3] == "0A" and _is_of(pid, line.split()[9])
    }
    asked = 0
    for port in ports:
        with socket.socket() as probe:
            probe.settimeout(5)
            if probe.connect_ex(("127.0.0.1", port)):
                continue
        try:
            reply = httpx.post(f"http://127.0.0.1:{port}/v1/completions", json={}, timeout=5)
        except httpx.HTTPError:
            continue  # a port that speaks no HTTP
        asked += 1
        assert reply.status_code == 401
        assert reply.content == b""
    assert asked == 1


def _is_of(pid: int, inode: str) -> bool:
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            if re.fullmatch(rf"socket:\[{inode}\]", str(entry.readlink())):
                return True
        except OSError:
            continue
    return False
