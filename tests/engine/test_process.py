from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from engine import process
from tests.support.queues import alive, until


def python(code: str, *arguments: str) -> list[str]:
    return [sys.executable, "-c", code, *arguments]


async def test_a_child_is_waited_for_and_its_words_are_kept(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("of an earlier one\n")
    child = process.start(python("import sys; print('out'); sys.exit('err')"), log=log)
    assert await child.wait() == child.returncode == 1
    child.kill()
    assert sorted(child.tail().splitlines()) == ["err", "out"]
    assert child.tail(1) in ("err", "out")


async def test_a_child_is_asked_to_end(tmp_path: Path) -> None:
    code = """
import signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
print("ready", flush=True)
signal.pause()
"""
    child = process.start(python(code), log=tmp_path / "log")
    await until(lambda: "ready" in child.tail())
    await child.stop()
    assert child.returncode == 7


async def test_a_child_that_does_not_listen_is_killed(tmp_path: Path) -> None:
    code = """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
while True: signal.pause()
"""
    child = process.start(python(code), log=tmp_path / "log")
    await until(lambda: "ready" in child.tail())
    await child.stop(grace_s=0.05)
    assert child.returncode == -signal.SIGKILL
    await child.stop()  # again does nothing


def test_a_program_that_is_not_there_says_so(tmp_path: Path) -> None:
    child = process.start(["/nowhere/at-all"], log=tmp_path / "log")
    child._popen.wait()
    child.kill()
    assert child.returncode != 0
    assert "No such file" in child.tail()


def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        process.start(python("import signal; signal.pause()"), log=tmp_path / "log").kill()
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.skipif(sys.platform != "linux", reason="the parent-death signal is Linux's")
async def test_killing_the_parent_ends_programs_of_others(tmp_path: Path) -> None:
    code = """
import signal, sys
from pathlib import Path
from engine import process
child = process.start(["/bin/sleep", "1000"], log=Path(sys.argv[1]))
print(child.pid, flush=True)
signal.pause()
"""
    parent = subprocess.Popen(python(code, str(tmp_path / "log")), stdout=subprocess.PIPE)
    with parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert alive(pid)
        parent.kill()
    await until(lambda: not alive(pid))


async def test_a_child_of_ours_ends_with_the_pipe_even_when_it_is_busy() -> None:
    code = """
from engine.process import exit_with_parent
exit_with_parent()
print("ready", flush=True)
while True: pass
"""
    reading, writing = os.pipe()
    child = subprocess.Popen(
        python(code),
        stdout=subprocess.PIPE,
        pass_fds=(reading,),
        env={**os.environ, process.PARENT_PIPE: str(reading)},
    )
    os.close(reading)
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        os.close(writing)
        assert child.wait(20) == 1
