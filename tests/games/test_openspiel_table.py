"""Every game that OpenSpiel registers, tried; the documentation says what came out."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tests.games.openspiel_table import PAGE, Row, page_with

REMEDY = "; run python -m tests.games.openspiel_table 20 200 and read what changed"


def tried(*, seeds: int, most_turns: int) -> list[Row]:
    """Try them in a fresh process: some end theirs, and forks of this one would warn of threads."""
    command = [sys.executable, "-m", "tests.games.openspiel_table", "--json"]
    done = subprocess.run(
        [*command, str(seeds), str(most_turns)],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # OpenSpiel writes its refusals there too
        check=True,
    )
    return msgspec.json.decode(done.stdout, type=list[Row])


def test_the_table_says_what_can_be_played():
    found = tried(seeds=1, most_turns=12)
    assert len(found) == 139
    assert page_with(found) == PAGE.read_text(encoding="utf-8"), REMEDY


@pytest.mark.long
def test_what_can_be_played_keeps_every_law():
    assert page_with(tried(seeds=20, most_turns=200)) == PAGE.read_text(encoding="utf-8"), REMEDY
