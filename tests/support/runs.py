"""Runs that keep their results, for tests that look at them one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from engine.client import Engine
from runtime.match import MatchResult
from runtime.play import Run, RunReport


class Kept(RunReport, frozen=True, kw_only=True):
    """A report with all results."""

    matches: tuple[MatchResult, ...]


class KeptRun(Run):
    def __init__(
        self, *given: Any, on_result: Callable[[MatchResult], None] | None = None, **more: Any
    ) -> None:
        self._kept: list[MatchResult] = []

        def keep(result: MatchResult) -> None:
            self._kept.append(result)
            if on_result is not None:
                on_result(result)

        super().__init__(*given, on_result=keep, **more)

    async def play(self, engine: Engine | None = None) -> Kept:
        report = await super().play(engine)
        return Kept(matches=tuple(self._kept), **msgspec.structs.asdict(report))
