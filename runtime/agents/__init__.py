"""Agents choose for seats."""

from __future__ import annotations

from runtime.agents.base import Act, Agent, Turn
from runtime.agents.registry import make_agent

__all__ = ["Act", "Agent", "Turn", "make_agent"]
