from __future__ import annotations

from pathlib import Path

import pytest

from games import load_game
from runtime.agents import make_agent
from runtime.agents.registry import policy_of
from runtime.errors import BadInput, UnknownAgent
from runtime.policy import Policy
from store.events import TurnTaken
from store.memory import MemoryLog
from tests.support.matches import events_of, play_one

TICTACTOE = load_game("tictactoe")


def actions(log: MemoryLog) -> list[str]:
    return [event.action for event in events_of(log) if isinstance(event, TurnTaken)]


def script(folder: Path, text: str) -> str:
    file = folder / "script.txt"
    file.write_text(text, encoding="utf-8")
    return f"scripted:{file}"


async def test_script_is_played_in_order_and_empty_lines_do_not_count(tmp_path: Path) -> None:
    one = script(tmp_path, "\ufefftop-left\n\n  top \r\ntop-right\n")
    (tmp_path / "o").mkdir()
    other = script(tmp_path / "o", "left\ncentre\n")
    log, result = await play_one(TICTACTOE, [one, other])
    assert actions(log) == ["top-left", "left", "top", "centre", "top-right"]
    assert result.returns == (1.0, -1.0)


async def test_script_does_not_spend_lines_on_forced_turns(tmp_path: Path) -> None:
    """Eight moves and then one cell that is left."""
    x = script(tmp_path, "centre\nbottom-left\ntop\nright\n")
    (tmp_path / "o").mkdir()
    o = script(tmp_path / "o", "top-left\ntop-right\nbottom\nleft\n")
    log, result = await play_one(TICTACTOE, [x, o])
    assert actions(log)[-1] == "bottom-right"
    assert result.turns == 9


async def test_illegal_line_is_named_with_what_would_be_legal(tmp_path: Path) -> None:
    agent = script(tmp_path, "top-left\n\nmiddle\n")
    with pytest.raises(BadInput, match=r"script\.txt, line 3: 'middle' is not legal.*'centre'"):
        await play_one(TICTACTOE, [agent, "random"])


async def test_script_that_is_too_short_says_so(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="it has 1 actions and match m-1 needs another"):
        await play_one(TICTACTOE, [script(tmp_path, "top-left\n"), "random"])


def test_script_has_to_be_readable_text(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="No such file"):
        make_agent(f"scripted:{tmp_path / 'missing'}")
    (tmp_path / "latin").write_bytes(b"caf\xe9")
    with pytest.raises(BadInput, match="byte 3 is not UTF-8"):
        make_agent(f"scripted:{tmp_path / 'latin'}")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("desicion", "did you mean 'decision'"),
        ("", "there are chat, decision, human, mcts, minimax, openspiel, random, scripted"),
        ("random:1", "takes no parameters"),
        ("scripted", "scripted:FILE"),
        ("decision:hot", "'hot' is not NAME=VALUE"),
        ("decision:temperature=x", "give a number"),
        ("decision:tempo=1", "there are temperature, floor, top_p"),
        ("decision:floor=0.1,floor=0.2", "comes twice"),
        ("decision:top_p=2", "from 0 to 1"),
        ("mcts:simulations=0", "simulations"),
        ("mcts:nodes=9", "there are simulations, deadline"),
        ("minimax:nodes=many", "nodes"),
        ("human:deadline=0", "deadline"),
        ("openspiel:deep_thought", "no bot 'deep_thought'; there are"),
    ],
)
def test_unknown_agents_are_refused_with_a_hint(spec: str, message: str) -> None:
    with pytest.raises(UnknownAgent, match=message):
        make_agent(spec)


def test_only_decision_agents_ask() -> None:
    assert make_agent("decision").asks
    assert not make_agent("random").asks
    assert policy_of("decision:temperature=0.5, floor=0.1") == Policy(temperature=0.5, floor=0.1)
