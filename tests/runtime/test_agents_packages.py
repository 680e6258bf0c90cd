"""Agents of other packages, found by their entry points."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import Any

import pytest

from games import load_game
from runtime.agents import Act, Agent, Turn, make_agent, registry
from runtime.agents.registry import GROUP, agent_names
from runtime.errors import UnknownAgent
from tests.support.matches import events_of, play_one, turns


class Last(Agent):
    """Takes the last option, or the one `back` before it."""

    def __init__(self, back: str = "0") -> None:
        self._back = int(back)

    async def act(self, turn: Turn) -> Act:
        return Act(turn.options[-1 - self._back].id)


def no_agent() -> object:
    return object()


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [
        EntryPoint("last", f"{__name__}:Last", GROUP),
        EntryPoint("gone", "no_such_package:Agent", GROUP),
        EntryPoint("odd", f"{__name__}:no_agent", GROUP),
        EntryPoint("random", f"{__name__}:Last", GROUP),
    ]

    def entry_points(*, group: str, name: str | None = None) -> list[EntryPoint]:
        assert group == GROUP
        return [point for point in points if name in (None, point.name)]

    monkeypatch.setattr(registry, "entry_points", entry_points)
    here: Any = type("Here", (), {"Last": Last, "no_agent": staticmethod(no_agent)})
    monkeypatch.setitem(__import__("sys").modules, __name__, here)


@pytest.mark.usefixtures("installed")
async def test_agent_of_a_package_plays_with_its_parameters() -> None:
    log, _ = await play_one(load_game("tictactoe"), ["last:back=1", "last"])
    assert [turn.action for turn in turns(events_of(log))[:2]] == ["bottom", "bottom-right"]


@pytest.mark.usefixtures("installed")
def test_names_of_packages_are_listed_and_none_replaces_a_built_in_one() -> None:
    assert {"last", "random", "decision"} <= set(agent_names())
    assert agent_names().count("random") == 1
    assert not isinstance(make_agent("random"), Last)
    with pytest.raises(UnknownAgent, match="did you mean 'last'"):
        make_agent("lasd")


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("gone", "no_such_package:Agent cannot be loaded.*repair or remove its package"),
        ("odd", "gave object; it has to give a runtime.agents.Agent"),
        ("last:back=x", "invalid literal"),
        ("last:forth=1", "unexpected keyword argument 'forth'"),
        ("last:1", "'1' is not NAME=VALUE"),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_place(spec: str, message: str) -> None:
    with pytest.raises(UnknownAgent, match=message):
        make_agent(spec)
