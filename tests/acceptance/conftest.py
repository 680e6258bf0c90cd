from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command import Command


@pytest.fixture
def ostinato(tmp_path: Path) -> Iterator[Command]:
    """The command, in a folder of its own; nothing that it started may outlive the test."""
    command = Command(tmp_path)
    yield command
    left = command.running()
    command.kill_rest()
    assert not left
