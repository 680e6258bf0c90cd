"""Engines without a queue, for tests of what asks them."""

from __future__ import annotations

from collections.abc import Callable

import anyio

from engine.contract import DecisionReply, DecisionRequest, Prime
from engine.errors import EngineError
from engine.mock import MockBackend, parse_mock
from engine.models import Model, open_model


class DirectEngine:
    """The mock model in this process; `on_request` sees every request before its answer."""

    def __init__(
        self,
        spec: str = "mock:seed=1",
        *,
        window: int | None = None,
        on_request: Callable[[DecisionRequest], None] | None = None,
    ) -> None:
        self.model: Model = open_model(spec, window=window)
        self.requests: list[DecisionRequest] = []
        self.primes: list[Prime] = []
        self._backend = MockBackend(parse_mock(spec))
        self._on_request = on_request

    async def decide(self, request: DecisionRequest) -> DecisionReply:
        self.requests.append(request)
        await anyio.lowlevel.checkpoint()
        if self._on_request is not None:
            self._on_request(request)
        return await self._backend.decide(request)

    async def prime(self, prime: Prime) -> None:
        self.primes.append(prime)


class FailingEngine(DirectEngine):
    """Fails the decisions whose numbers, counted from 0, are in `failing`."""

    def __init__(self, error: EngineError, failing: Callable[[int], bool] = lambda _: True) -> None:
        super().__init__()
        self._error = error
        self._failing = failing

    async def decide(self, request: DecisionRequest) -> DecisionReply:
        number = len(self.requests)
        reply = await super().decide(request)
        if self._failing(number):
            raise self._error
        return reply


class SilentEngine(DirectEngine):
    """Never answers, and forgets its deadline."""

    async def decide(self, request: DecisionRequest) -> DecisionReply:
        self.requests.append(request)
        await anyio.sleep_forever()
        raise AssertionError


class AlteringEngine(DirectEngine):
    """Gives what `alter` makes of each reply."""

    def __init__(self, alter: Callable[[DecisionReply], DecisionReply]) -> None:
        super().__init__()
        self._alter = alter

    async def decide(self, request: DecisionRequest) -> DecisionReply:
        return self._alter(await super().decide(request))
