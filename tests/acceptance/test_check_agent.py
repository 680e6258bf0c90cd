"""`ostinato check-agent`, and agents that come as packages of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command import Command
from tests.support.packages import ROOT, check_shown, installed

TEMPLATE = ROOT / "docs" / "your-agent"

BROKEN = """
import os
from runtime.agents import Act, Agent

class Spins(Agent):
    async def act(self, turn):
        while turn.index:
            pass
        return Act(turn.options[0].id)

class Ends(Agent):
    async def act(self, turn):
        if turn.index:
            os.abort()
        return Act(turn.options[0].id)

class Unordered(Agent):
    async def act(self, turn):
        return Act(sorted(turn.options, key=lambda option: hash(option.id))[0].id)

class Invents(Agent):
    async def act(self, turn):
        return Act("nowhere")

def make(kind):
    return globals()[kind]()
"""


@pytest.fixture
def packages(tmp_path: Path) -> str:
    folder = tmp_path / "packages"
    return installed(folder, TEMPLATE, "ostinato.agents", broken=BROKEN, entry="make")


def test_the_template_keeps_every_law_and_plays(ostinato: Command, packages: str):
    done = ostinato("check-agent", "sure:least=0.3", "--seeds", 1, "--json", PYTHONPATH=packages)
    assert done.code == 0, done
    tried = {game["game"]: game for game in done.document["games"]}
    assert tried["tictactoe"]["decisions"] >= 3
    assert "which sure does not" in tried["trial:parts"]["refused"]
    played = ostinato(
        *("play", "tictactoe", "--seat", "eager", "--seat", "sure", "--matches", 3, "--seed", 1),
        *("--model", "mock:seed=1", "--log", "eager.db"),
        PYTHONPATH=packages,
    )
    assert played.code == 0, played
    assert ostinato("replay", "eager.db", PYTHONPATH=packages).code == 0


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("Spins", "'time', tictactoe, seed 0, turn "),
        ("Ends", "'act', tictactoe, seed 0, turn 2: its process ended with SIGABRT"),
        ("Unordered", "'hash seed', tictactoe, seeds 0 to 1, some turn: under PYTHONHASHSEED=1"),
        ("Invents", "'label', tictactoe, seed 0, turn 0: it named 'nowhere', which is not offered"),
    ],
)
def test_a_broken_law_is_named_with_game_seed_and_turn(
    ostinato: Command, packages: str, kind: str, message: str
):
    deadline = 2 if kind == "Spins" else 60
    arguments = ("check-agent", f"broken:kind={kind}", "--seeds", 2, "--game", "tictactoe")
    done = ostinato(*arguments, "--deadline", deadline, PYTHONPATH=packages)
    said = done.refused("runtime/agent_broken")
    assert f"breaks the law {message}" in said
    assert ("it let nothing else run for 2 s; await" in said) == (kind == "Spins")


def test_the_table_says_what_is_not_played_and_why(ostinato: Command):
    done = ostinato(
        *("check-agent", "minimax:nodes=50", "--seeds", 1),
        *("--game", "tictactoe", "--game", "kuhn_poker"),
    )
    assert done.code == 0, done
    assert "kuhn_poker: not played: minimax needs two seats" in done.stdout
    assert "keeps every law" in done.stdout


def test_what_is_no_agent_or_no_game_is_refused(here):
    assert "did you mean 'random'" in here("check-agent", "randon").refused("runtime/unknown_agent")
    refused = here("check-agent", "random", "--game", "chessboard").refused("games/unknown_game")
    assert "no game 'chessboard'" in refused
    assert "waits for a person" in here("check-agent", "human").refused("runtime/bad_input")


def test_the_how_to_shows_the_template_and_it_is_short():
    check_shown(TEMPLATE / "eager.py", "agents.md", most=40)
