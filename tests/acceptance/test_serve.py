"""`ostinato serve` as clients meet it: a process, a port, and the official clients unmodified."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
import typesafe_sdk

from engine.broker import Broker
from runtime.http.openapi import EXAMPLE
from tests.support.command import Command, finished, wait_for
from tests.support.servers import serving

pytestmark = pytest.mark.timeout(300)

CLIENT = Path(sys.executable).parents[1] / "js/node_modules/@typesafe-ai/sdk"
SYSTEMONE = "/v1/systemone"
DEADLINE_S = 50


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    command = Command(tmp_path_factory.mktemp("serve"))
    with serving(command) as (url, process):
        yield url
        process.send_signal(signal.SIGTERM)
        assert finished(process).code == 0
    assert not command.running()


def ask(client: Any) -> Any:
    questions = {
        "door": typesafe_sdk.Choice(
            instructions="Which door?",
            criteria={"left": "The oak one", "right": {"made of": ["tin"]}},
        ),
        "trap": typesafe_sdk.Noul(instructions="Is it a trap?"),
        "danger": typesafe_sdk.Score(criteria=["none", "some", "much"]),
    }
    return client.system_one(
        state={"room": "cold", "log": ["a step"] * 400, "odds": float("nan"), "n": 10**30},
        questions=questions,
    )


def test_the_official_python_client(server: str):
    with typesafe_sdk.TypeSafeClient(api_key="any", base_url=server) as client:
        reply = ask(client)
        assert set(reply.answers) == {"door", "trap", "danger"}
        assert reply.answers["door"].choice in ("left", "right")
        assert 0 <= reply.answers["trap"].noul <= 1
        assert reply.answers["danger"].legend == {0: "none", 1: "some", 2: "much"}
        assert reply.usage.input_tokens > 0
        assert "jev-latest" in {model.name for model in client.models.list().models}


@pytest.mark.skipif(
    shutil.which("node") is None or not CLIENT.exists(),
    reason="the JavaScript client is not installed: `make test` fetches it where there is Node",
)
def test_the_official_javascript_client(server: str, tmp_path: Path):
    program = tmp_path / "ask.mjs"
    program.write_text(
        f"""
        import {{ TypeSafeClient, noul, choice, score }} from {str(CLIENT / "dist/index.mjs")!r};
        const client = new TypeSafeClient({{ apiKey: "any", baseURL: {server!r} }});
        const reply = await client.systemOne({{
          state: {{ room: "cold" }},
          questions: {{
            door: {{ type: "choice", criteria: {{ left: null, right: "tin" }} }},
            trap: {{ type: "noul" }},
            danger: {{ type: "score", criteria: ["none", null] }},
          }},
        }});
        const models = await client.models.list();
        console.log(JSON.stringify([reply, models]));
        """
    )
    environment = os.environ | {"TYPESAFE_BASE_URL": server, "TYPESAFE_API_KEY": "any"}
    done = subprocess.run(
        ["node", program], capture_output=True, text=True, timeout=60, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert '"choice"' in done.stdout
    assert '"jev-latest"' in done.stdout


def test_the_conformance_suite(server: str):
    """Its report stays in the data folder."""
    report = Path(".ostinato/jevcompat.md")
    report.parent.mkdir(exist_ok=True)
    done = subprocess.run(
        [Path(sys.executable).with_name("jevcompat"), "test", server, "--markdown", report],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"MUST (\d+)/\1, SHOULD (\d+)/\2\b", done.stdout), done.stdout
    assert report.exists()


def test_without_a_queue_clients_are_told_and_with_it_back_answered(ostinato: Command):
    with serving(ostinato, model="mock:delay_ms=3000") as (url, process):
        broker = next(pid for pid, line in ostinato.running().items() if "nats-server" in line)
        with httpx.Client(base_url=url, timeout=30) as client:
            os.kill(broker, signal.SIGKILL)
            reply = client.post(SYSTEMONE, json=EXAMPLE)
            if reply.status_code != 200:  # the broker may be back before anybody notices
                assert reply.status_code == 503
                assert int(reply.headers["retry-after-ms"]) <= 2000
            wait_for(lambda: client.post(SYSTEMONE, json=EXAMPLE).status_code == 200, within_s=60)
            assert client.get("/health").status_code == 200
        process.send_signal(signal.SIGTERM)
        assert finished(process).code == 0


def test_a_worker_that_dies_is_missed_and_comes_back(ostinato: Command):
    with serving(ostinato) as (url, process):
        worker = next(pid for pid, line in ostinato.running().items() if "engine.worker" in line)
        with httpx.Client(base_url=url, timeout=30) as client:
            os.kill(worker, signal.SIGKILL)
            reply = client.post(SYSTEMONE, json=EXAMPLE)  # waits for the next worker, or is told
            assert reply.status_code in (200, 503)
            wait_for(lambda: worker not in ostinato.running())
            wait_for(lambda: client.post(SYSTEMONE, json=EXAMPLE).status_code == 200, within_s=60)
            assert client.get("/health/live").status_code == 200
        process.send_signal(signal.SIGTERM)
        assert finished(process).code == 0


def end_while_asked(
    ostinato: Command, url: str, process: subprocess.Popen[str], body: dict[str, Any]
) -> httpx.Response:
    """Send SIGTERM while a request is under way; give its reply."""
    worker = next(pid for pid, line in ostinato.running().items() if "engine.worker" in line)
    os.kill(worker, signal.SIGSTOP)
    with ThreadPoolExecutor(1) as pool:
        reply = pool.submit(httpx.post, url + SYSTEMONE, json=body, timeout=60)
        under_way = "decisions_under_way 1.0"
        wait_for(lambda: under_way in httpx.get(url + "/metrics", timeout=60).text, within_s=60)
        process.send_signal(signal.SIGTERM)
        os.kill(worker, signal.SIGCONT)
        return reply.result()


def test_what_is_under_way_is_answered_before_the_end(ostinato: Command):
    with serving(ostinato, "--deadline", DEADLINE_S) as (url, process):
        assert end_while_asked(ostinato, url, process, EXAMPLE).status_code == 200
        assert finished(process).code == 0


def test_decisions_are_kept_in_a_log(ostinato: Command, tmp_path: Path):
    def body(state: str) -> dict[str, Any]:
        return EXAMPLE | {"state": state, "x_session": "alice"}

    arguments = ("--log", tmp_path / "served.db", "--deadline", DEADLINE_S)
    with serving(ostinato, *arguments) as (url, process):
        with typesafe_sdk.TypeSafeClient(api_key="any", base_url=url) as client:
            typed = typesafe_sdk.Noul(instructions="Is it a trap?")
            client.system_one(
                state="a door", questions={"trap": typed}, extra_body={"x_session": "alice"}
            )
        second = ostinato("serve", "--port", 0, "--model", "mock", *arguments)
        assert "being written by process" in second.refused("store/locked")
        stair = body("a door, and behind it a stair")
        assert end_while_asked(ostinato, url, process, stair).status_code == 200
        assert finished(process).code == 0
    with serving(ostinato, *arguments) as (url, process):
        stairs = body("a door, and behind it two stairs")
        assert httpx.post(url + SYSTEMONE, json=stairs, timeout=60).status_code == 200
        process.kill()  # what was answered is in the log
        process.wait()
    ostinato.kill_rest()
    wait_for(lambda: not ostinato.running())
    replayed = ostinato("replay", "served.db")
    assert replayed.code == 0
    said = "1 matches, 3 turns: identical (sessions of HTTP clients: 1)"
    assert said in " ".join(replayed.stdout.split())
    other = ostinato("replay", "served.db", "--redecide", "mock:seed=2", "--json")
    assert (other.code, other.document["decisions"]) == (0, 3)


def test_a_gateway_to_workers_elsewhere(ostinato: Command):
    with serving(ostinato) as (_, first):
        file = ostinato.home / "run/1/broker.json"
        nats = msgspec.json.decode(file.read_bytes(), type=Broker).url
        other = {"model": "mock:seed=2", "ready": False}
        with serving(ostinato, "--nats", nats, **other) as (gateway, _):
            reply = httpx.post(gateway + SYSTEMONE, json=EXAMPLE)
            assert reply.status_code == 503
            health = httpx.get(gateway + "/health")
            assert health.status_code == 503
            assert health.json() == {"process": "up", "worker": "absent", "adapter": "none"}
            assert httpx.get(gateway + "/health/live").status_code == 200
        with serving(ostinato, "--nats", nats, "--deadline", DEADLINE_S) as (gateway, process):
            assert httpx.post(gateway + SYSTEMONE, json=EXAMPLE).status_code == 200
            worker = next(p for p, line in ostinato.running().items() if "engine.worker" in line)
            os.kill(worker, signal.SIGSTOP)
            with ThreadPoolExecutor(1) as pool:
                reply = pool.submit(httpx.post, gateway + SYSTEMONE, json=EXAMPLE, timeout=60)
                wait_for(lambda: "decisions_under_way 1.0" in httpx.get(gateway + "/metrics").text)
                first.kill()  # the broker goes with it
                lost = time.monotonic()
                told = reply.result()
                assert time.monotonic() - lost < DEADLINE_S / 4
            assert told.status_code == 503
            assert int(told.headers["retry-after-ms"]) <= 2000
            wait_for(lambda: httpx.get(gateway + "/health").status_code == 503)
            process.send_signal(signal.SIGTERM)
            assert finished(process).code == 0
    ostinato.kill_rest()
    wait_for(lambda: not ostinato.running())


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--host", "0.0.0.0"), "runtime/bad_input", "--api-key-file"),
        (("--port", "99999"), "runtime/bad_input", "99999"),
        (("--host", "203.0.113.7", "--no-key"), "runtime/bad_input", "203.0.113.7"),
        (("--api-key-file", "absent.toml"), "runtime/bad_input", "absent.toml"),
        (("--deadline", "0"), "runtime/bad_input", "--deadline"),
        (("--log", "absent/log.db"), "store/unavailable", "absent/log.db"),
        (("--nats", "nats://127.0.0.1:1"), "engine/queue_unavailable", "127.0.0.1:1"),
    ],
)
def test_what_cannot_be_served(ostinato: Command, arguments: tuple[str, ...], code: str, said: str):
    done = ostinato("serve", "--model", "mock", "--port", 0, *arguments)
    assert done.code == 1
    line = done.stderr.strip().splitlines()[-1]
    assert line.startswith("error: ")
    assert said in line
    assert f"[{code}]" in line


def test_a_key_is_made_and_used(ostinato: Command, tmp_path: Path):
    made = ostinato("api-key", "alice")
    assert made.code == 0
    key = made.stderr.split()[-1]
    (tmp_path / "keys.toml").write_text(made.stdout)
    with serving(ostinato, "--api-key-file", tmp_path / "keys.toml") as (url, process):
        with (
            typesafe_sdk.TypeSafeClient(api_key="wrong", base_url=url) as client,
            pytest.raises(typesafe_sdk.TypeSafeAuthenticationError, match="not known"),
        ):
            ask(client)
        with typesafe_sdk.TypeSafeClient(api_key=key, base_url=url) as client:
            assert ask(client).answers
        process.send_signal(signal.SIGINT)
        assert finished(process).code == 0


def test_a_match_is_decided_by_another_server(server: str, ostinato: Command):
    played = ostinato(
        *("play", "kuhn_poker", "--matches", 3, "--seed", 1, "--json"),
        *("--seat", "decision", "--seat", "random", "--log", "far.db"),
        *("--model", f"systemone:{server}"),
    )
    assert played.code == 0, played
    near = ostinato(
        *("play", "kuhn_poker", "--matches", 3, "--seed", 1, "--json"),
        *("--seat", "decision", "--seat", "random", "--log", "near.db", "--model", "mock:seed=1"),
    )
    assert played.document["decisions"]["asked"] == near.document["decisions"]["asked"] > 0
    assert ostinato("replay", "far.db").code == 0
