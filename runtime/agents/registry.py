"""Agents by name, as a command line or a settings file gives them."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from pathlib import Path

from runtime.agents.base import Agent
from runtime.agents.decision import DecisionAgent
from runtime.agents.random import RandomAgent
from runtime.agents.scripted import ScriptedAgent
from runtime.errors import UnknownAgent
from runtime.policy import Policy, make_policy


def make_agent(spec: str) -> Agent:
    """Make an agent of its name and parameters: `NAME` or `NAME:PARAMETERS`.

    Raises:
        UnknownAgent: There is no such agent, or it takes no such parameters.
        BadInput: A file that it names cannot be used.
    """
    name, parameters = split_spec(spec)
    factory = _FACTORIES.get(name)
    if factory is None:
        near = difflib.get_close_matches(name, _FACTORIES, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise UnknownAgent(f"no agent {name!r}; {hint}there are {', '.join(_FACTORIES)}")
    return factory(parameters)


def split_spec(spec: str) -> tuple[str, str]:
    """Give an agent's name and its parameters, which may be empty."""
    name, _, parameters = spec.partition(":")
    return name, parameters


def policy_of(spec: str) -> Policy:
    """Give the policy of a decision agent's spec; raises UnknownAgent for bad parameters."""
    return _policy(split_spec(spec)[1])


def _policy(parameters: str) -> Policy:
    pairs = dict[str, str]()
    for part in filter(None, parameters.split(",")):
        name, sign, value = part.partition("=")
        if not sign:
            raise UnknownAgent(f"decision:{parameters}: {part!r} is not NAME=VALUE")
        pairs[name.strip()] = value.strip()
    return make_policy(pairs)


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


def _chat(parameters: str) -> Agent:
    # what speaks HTTP is not needed by any other agent
    from runtime.agents.chat import ChatAgent, parse_chat

    return ChatAgent(parse_chat(parameters))


_FACTORIES: dict[str, Callable[[str], Agent]] = {
    "chat": _chat,
    "decision": _decision,
    "random": _random,
    "scripted": _scripted,
}
