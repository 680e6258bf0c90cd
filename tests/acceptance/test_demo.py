"""`ostinato demo`: what `make play` runs."""

from __future__ import annotations

import re

from tests.support.command import Command


def test_from_nothing_to_identical(ostinato: Command):
    done = ostinato("demo", "--model", "mock:seed=1")
    assert done.code == 0, done
    for words in ("tictactoe (10)", "openspiel:connect_four (4)", "p95 ms", "arbitrary"):
        assert words in done.stdout
    assert "Replayed all 14 matches" in done.stdout
    assert "identical" in done.stdout
    suggested = done.stdout.partition("Try next:\n")[2].splitlines()
    assert len(suggested) == 3
    assert not ostinato.running()

    replay, play, export = (re.sub(r"^ *\.venv/bin/ostinato ", "", line) for line in suggested)
    assert ostinato(*replay.split()).code == 0
    assert ostinato(*play.split(), "--model", "mock:seed=1").code == 0
    assert ostinato(*export.split()).code == 0
