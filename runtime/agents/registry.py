"""Agents by name, as a command line or a settings file gives them.

A package adds an agent with an entry point in the group `ostinato.agents`; its object is called
with the parameters of the spec, as strings, and gives an Agent.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from inspect import signature
from pathlib import Path

from runtime.agents.base import Agent
from runtime.agents.decision import DecisionAgent
from runtime.agents.human import HumanAgent, HumanSettings
from runtime.agents.mcts import MctsAgent, MctsSettings
from runtime.agents.minimax import MinimaxAgent, MinimaxSettings
from runtime.agents.openspiel import BotSettings, OpenSpielAgent
from runtime.agents.parameters import parse_pairs, parse_settings
from runtime.agents.random import RandomAgent
from runtime.agents.scripted import ScriptedAgent
from runtime.errors import UnknownAgent
from runtime.policy import Policy, make_policy

GROUP = "ostinato.agents"

FORMS = (
    "decision (the most probable option), decision:temperature=0.7 (drawn, also with top_p=0.9 and"
    " floor=0.01 after a comma), random, mcts:simulations=200, minimax:nodes=20000, human,"
    " scripted:FILE (a label a line), chat:URL,model=NAME, openspiel:BOT, or NAME:KEY=VALUE of an"
    " installed package"
)
"""All forms of a spec, for `--help`."""


def make_agent(spec: str) -> Agent:
    """Make an agent of its name and parameters: `NAME` or `NAME:PARAMETERS`.

    Raises:
        UnknownAgent: There is no such agent, or it takes no such parameters.
        BadInput: A file that it names cannot be used.
    """
    name, parameters = split_spec(spec)
    factory = _FACTORIES.get(name)
    if factory is not None:
        return factory(parameters)
    for point in entry_points(group=GROUP, name=name):
        return _of_package(point, name, parameters)
    names = agent_names()
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise UnknownAgent(f"no agent {name!r}; {hint}there are {', '.join(names)}")


def agent_names() -> list[str]:
    """Give the names of all agents, those of installed packages included, in order."""
    return sorted({*_FACTORIES, *(point.name for point in entry_points(group=GROUP))})


def split_spec(spec: str) -> tuple[str, str]:
    """Give an agent's name and its parameters, which may be empty."""
    name, _, parameters = spec.partition(":")
    return name, parameters


def policy_of(spec: str) -> Policy:
    """Give the policy of a decision agent's spec; raises UnknownAgent for bad parameters."""
    return _policy(split_spec(spec)[1])


def _policy(parameters: str) -> Policy:
    return make_policy(parse_pairs("decision", parameters))


def _decision(parameters: str) -> Agent:
    return DecisionAgent(_policy(parameters))


def _random(parameters: str) -> Agent:
    if parameters:
        raise UnknownAgent(f"random takes no parameters, not {parameters!r}")
    return RandomAgent()


def _scripted(parameters: str) -> Agent:
    if not parameters:
        raise UnknownAgent("scripted needs a file: scripted:FILE, one action label a line")
    return ScriptedAgent(Path(parameters))


def _mcts(parameters: str) -> Agent:
    return MctsAgent(parse_settings("mcts", parameters, MctsSettings))


def _minimax(parameters: str) -> Agent:
    return MinimaxAgent(parse_settings("minimax", parameters, MinimaxSettings))


def _human(parameters: str) -> Agent:
    return HumanAgent(parse_settings("human", parameters, HumanSettings))


def _openspiel(parameters: str) -> Agent:
    name, _, rest = parameters.partition(",")
    return OpenSpielAgent(name, parse_settings("openspiel", rest, BotSettings))


def _of_package(point: EntryPoint, name: str, parameters: str) -> Agent:
    pairs = parse_pairs(name, parameters)
    try:
        factory = point.load()
    except (ImportError, AttributeError) as error:
        raise UnknownAgent(
            f"agent {name!r} of {point.value} cannot be loaded: {error}; repair or remove its"
            " package"
        ) from error
    try:
        signature(factory).bind(**pairs)
    except TypeError as error:
        raise UnknownAgent(f"{name}:{parameters}: {error}") from error
    try:
        agent = factory(**pairs)
    except ValueError as error:
        raise UnknownAgent(f"{name}:{parameters}: {error}") from error
    if not isinstance(agent, Agent):
        raise UnknownAgent(
            f"agent {name!r}: {point.value} gave {type(agent).__name__}; it has to give a"
            " runtime.agents.Agent"
        )
    return agent


def _chat(parameters: str) -> Agent:
    # what speaks HTTP is not needed by any other agent
    from runtime.agents.chat import ChatAgent, parse_chat

    return ChatAgent(parse_chat(parameters))


_FACTORIES: dict[str, Callable[[str], Agent]] = {
    "chat": _chat,
    "decision": _decision,
    "human": _human,
    "mcts": _mcts,
    "minimax": _minimax,
    "openspiel": _openspiel,
    "random": _random,
    "scripted": _scripted,
}
