"""An agent's trial in processes of its own, under two hash seeds."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import msgspec

from games.errors import GamesError
from runtime import errors
from runtime.children import HASH_SEEDS, Ended, run_under_hash_seeds
from runtime.errors import AgentBroken, RuntimeFault
from runtime.trial import AT, Tried


class _Fault(msgspec.Struct, frozen=True):
    code: str
    message: str


class _Said(msgspec.Struct, frozen=True):
    error: _Fault


def try_in_processes(
    spec: str, games: Sequence[str], *, seeds: int, deadline_s: float
) -> list[Tried]:
    """Try an agent twice, side by side.

    Args:
        spec: The agent, as `--seat` takes it.
        games: Ids, or names of `games.trial.TRIALS`.
        seeds: Matches of each game.
        deadline_s: Seconds for one turn.

    Raises:
        AgentBroken: A law is broken; names the law, the game, the seed, the turn.
        CannotPlay: It plays none of the games.
        RuntimeFault, GamesError: There is no such agent or game.
    """
    command = [sys.executable, "-m", "runtime.trial", f"--seeds={seeds}"]
    command += [f"--deadline={deadline_s}", "--", spec, *games]
    first, second = [_tried(spec, ended, deadline_s) for ended in run_under_hash_seeds(command)]
    for one, other in zip(first, second, strict=True):
        if one.digest != other.digest:
            raise AgentBroken(
                f"{spec} breaks the law 'hash seed', {one.game}, seeds 0 to {seeds - 1}, some turn:"
                f" under PYTHONHASHSEED={HASH_SEEDS[0]} and {HASH_SEEDS[1]} it chose differently;"
                " something goes through a set, or a hash, in its own order"
            )
    return first


def _tried(spec: str, ended: Ended, deadline_s: float) -> list[Tried]:
    if ended.code == 0:
        return msgspec.json.decode(ended.said, type=list[Tried])
    if ended.code == 1 and ended.said:
        fault = msgspec.json.decode(ended.said, type=_Said).error
        raise _kinds().get(fault.code, RuntimeFault)(fault.message)
    places = [line for line in ended.complaint.splitlines() if line.startswith(AT)]
    place = places[-1].removeprefix(AT) if places else "before its first turn"
    if "Timeout (" in ended.complaint:
        raise AgentBroken(
            f"{spec} breaks the law 'time', {place}: it let nothing else run for {deadline_s:g} s;"
            " await what takes long, or give up the time between with anyio.lowlevel.checkpoint()"
        )
    raise AgentBroken(f"{spec} breaks the law 'act', {place}: its process ended with {ended.how}")


def _kinds() -> dict[str, type[Exception]]:
    """Errors that a message alone makes, by their code."""
    own = (kind for kind in vars(errors).values() if isinstance(kind, type))
    kinds = [kind for kind in own if issubclass(kind, RuntimeFault)]
    kinds += [kind for kind in GamesError.__subclasses__() if "__init__" not in vars(kind)]
    return {kind.code: kind for kind in kinds}
