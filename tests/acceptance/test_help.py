"""What `--help` shows on a terminal of the usual width: all of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
import typer

from runtime.cli.app import app
from tests.support.command import Done


def names(command: object, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    for name, each in getattr(command, "commands", {}).items():
        yield from names(each, (*path, name))


COMMANDS = list(names(typer.main.get_command(app)))


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_is_whole(
    here: Callable[..., Done], monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
):
    monkeypatch.setenv("COLUMNS", "80")
    done = here(*command, "--help")
    assert (done.code, done.stderr) == (0, "")
    assert "…" not in done.stdout
    assert not re.search(r"\{[a-z]", done.stdout), "an argument without its word in capitals"
