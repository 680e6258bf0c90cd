"""What is left when a process of the engine is killed. In bf16, as the service runs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.bundles import adapter_bundle

pytest.importorskip("vllm")

pytestmark = pytest.mark.vllm

WORKER = """
import json, sys
from pathlib import Path

import anyio

from engine.bundle import load_bundle
from engine.contract import Ask, DecisionRequest, Field
from engine.errors import EngineError
from engine.llm.backend import VllmBackend

FIELD = Field(
    id="q", type="noul", instruction="Is it open?", option_ids=("true", "false"),
    option_texts=('{"option_id":"true"}', '{"option_id":"false"}'),
)
REQUEST = DecisionRequest(
    id="d", attempt=1, source="s", affinity="a", remaining_s=60,
    ask=Ask(state="A gate.", fields=(FIELD,)),
)

def say(**words):
    print(json.dumps(words), flush=True)

async def main():
    backend = await VllmBackend.start(load_bundle(Path(sys.argv[1])), window=1024)
    [engine] = backend.engine.engine_core.resources.engine_manager.processes
    say(engine=engine.pid, answer=(await backend.decide(REQUEST)).answers[0].probabilities)
    with anyio.fail_after(60):
        while not backend.dead:
            await anyio.sleep(0.05)
    try:
        await backend.decide(REQUEST)
    except EngineError as error:
        say(code=error.code, message=str(error))
    await backend.close()

if __name__ == "__main__":
    anyio.run(main)
"""


@pytest.fixture(scope="module")
def bundle(tmp_path_factory) -> Path:
    return adapter_bundle(tmp_path_factory.mktemp("adapted")).path


@pytest.fixture
def worker(bundle, tmp_path) -> Iterator[subprocess.Popen[str]]:
    script = tmp_path / "worker.py"
    script.write_text(WORKER)
    root = Path(__file__).parents[2]
    with (
        (tmp_path / "log").open("w") as log,
        subprocess.Popen(
            [sys.executable, script, bundle],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=os.environ | {"PYTHONPATH": str(root)},
        ) as process,
    ):
        yield process
        process.kill()


def heard(worker: subprocess.Popen[str]) -> dict[str, Any]:
    assert worker.stdout is not None
    return json.loads(worker.stdout.readline())


def runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"  # an orphan that nobody waits for in a container stays as a zombie


def test_a_dead_engine_is_noticed_and_ends_decisions(worker):
    started = heard(worker)
    assert sum(started["answer"]) == pytest.approx(1)
    os.kill(started["engine"], signal.SIGKILL)
    ended = heard(worker)
    assert ended["code"] == "engine/failed"
    assert "the engine process is gone" in ended["message"]
    assert worker.wait(30) == 0


def test_the_engine_does_not_outlive_a_killed_worker(worker):
    engine = heard(worker)["engine"]
    assert runs(engine)
    worker.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 30
    while runs(engine):
        assert time.monotonic() < deadline
        time.sleep(0.05)
