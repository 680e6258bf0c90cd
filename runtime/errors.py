"""Errors of the runtime.

RuntimeFault               runtime/error
├── UnknownAgent           runtime/unknown_agent
├── BadSettings            runtime/bad_settings
├── BadInput               runtime/bad_input        a file or flag that cannot be used
├── CannotPlay             runtime/cannot_play      this agent cannot play this game
├── AgentFailed            runtime/agent_failed     it raised, took too long, gave no Act
├── AgentBroken            runtime/agent_broken     a law that every agent has to keep is broken
├── ReplayDiffers          runtime/replay_differs
└── WorkerFailed           runtime/worker_failed
"""

from __future__ import annotations


def first_of(group: BaseException) -> BaseException:
    """Give the error that stopped a group of tasks, out of its wrapping."""
    while isinstance(group, BaseExceptionGroup):
        group = group.exceptions[0]
    return group


class RuntimeFault(Exception):
    """Root of what goes wrong in the runtime. `code` is stable; the message names the remedy."""

    code = "runtime/error"


class UnknownAgent(RuntimeFault):
    """No agent of that name, or its parameters are not known."""

    code = "runtime/unknown_agent"


class BadSettings(RuntimeFault):
    """A settings file or environment variable holds something that is not a setting."""

    code = "runtime/bad_settings"


class BadInput(RuntimeFault):
    """A file or flag cannot be used; the message names the place."""

    code = "runtime/bad_input"


class CannotPlay(RuntimeFault):
    """This agent cannot play this game as it is; said before the match starts."""

    code = "runtime/cannot_play"


class AgentFailed(RuntimeFault):
    """An agent raised something, thought longer than it may, or gave something else than an Act."""

    code = "runtime/agent_failed"


class AgentBroken(RuntimeFault):
    """A law that every agent has to keep is broken; names the law, the game, seed and turn."""

    code = "runtime/agent_broken"


class ReplayDiffers(RuntimeFault):
    """A recorded match does not come out as recorded."""

    code = "runtime/replay_differs"


class WorkerFailed(RuntimeFault):
    """The worker process ended or did not become ready."""

    code = "runtime/worker_failed"
