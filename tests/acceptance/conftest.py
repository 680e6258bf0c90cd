from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runtime.cli.app import run
from tests.support.command import Command, Done


@pytest.fixture
def ostinato(tmp_path: Path) -> Iterator[Command]:
    """The command, in a folder of its own; nothing that it started may outlive the test."""
    command = Command(tmp_path)
    yield command
    left = command.running()
    command.kill_rest()
    assert not left


@pytest.fixture
def here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Done]:
    """Runs commands in this process, which is many times faster than to start one for each."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OSTINATO_HOME", str(tmp_path / "home"))

    def run_here(*arguments: object) -> Done:
        code = run([str(argument) for argument in arguments])
        said = capsys.readouterr()
        return Done(code, str(said.out), str(said.err))

    return run_here
