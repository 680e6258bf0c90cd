"""What the routes share: the engine behind the queue, who may ask, and what is under way."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final, Literal

import anyio
import anyio.to_thread
import msgspec

from engine.client import Engine
from engine.contract import Ask, DecisionReply
from engine.errors import DecisionExpired, EngineError, RecordTooLong
from engine.models import Model, served_name
from runtime.http.answers import Confidence
from runtime.http.chat import ChatProxy
from runtime.http.keys import Keys
from runtime.http.load import Load
from runtime.http.metrics import Metrics
from runtime.http.problems import of_engine, of_store, problem
from runtime.http.sessions import Sessions
from runtime.http.sharing import Sharing
from runtime.http.systemone import Asked
from store.errors import StoreError

ALIASES: Final = ("clef", "jev-latest")
_MORE_S: Final = 0.4  # to find out why there is no answer; clients give up at 10 s
_LONG: Final = 20_000  # characters; counting their tokens would hold up others


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What one request may take.

    Attributes:
        body_bytes: Packed and unpacked.
        body_s: For the body to arrive.
        deadline_s: For a decision; clients give up at 10 s.
    """

    body_bytes: int = 13 << 20
    body_s: float = 10.0
    deadline_s: float = 9.0


class Ready(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the parts; `/health` shows it.

    Attributes:
        process: This server.
        worker: `ready` when a live worker of the model has passed its self-test.
        adapter: `acting` when that self-test showed it; `none` if the model has no adapter.
    """

    process: Literal["up", "ending"]
    worker: Literal["ready", "absent"]
    adapter: Literal["acting", "none", "unknown"]


class Gateway:
    """Answers decisions for HTTP clients.

    Args:
        model: The model that is served.
        sharing: Asks.
        keys: Who may ask; None lets anybody.
        aliases: Further names of the model.
        confidence: Which formula replies use.
        limits: What a request may take.
        sessions: Keeps what is answered; None keeps nothing.
    """

    def __init__(
        self,
        model: Model,
        sharing: Sharing,
        *,
        keys: Keys | None = None,
        aliases: tuple[str, ...] = (),
        confidence: Confidence = "typesafe",
        limits: Limits | None = None,
        sessions: Sessions | None = None,
    ) -> None:
        self.model = model
        self.name = served_name(model.name)
        self.names = tuple(dict.fromkeys((self.name, *ALIASES, *aliases)))
        self.keys = keys
        self.confidence: Confidence = confidence
        self.limits = limits or Limits()
        self.load = Load()
        self.metrics = Metrics(self.load)
        self.started = int(time.time())
        self.chat = ChatProxy((self.name, *aliases), self.names)
        self.engine: Engine | None = None
        """None until a worker is there, and while there is none."""
        self.ending = False
        self._sharing = sharing
        self._sessions = sessions

    def ready(self) -> Ready:
        """Say what is there now."""
        adapter = "none"
        if self.model.bundle is not None and self.model.bundle.adapter is not None:
            adapter = "unknown" if self.engine is None else "acting"
        return Ready(
            process="ending" if self.ending else "up",
            worker="absent" if self.engine is None else "ready",
            adapter=adapter,
        )

    def identify(self, headers: Mapping[str, str]) -> str:
        """Give the name of the caller's key; empty where none is needed. Raises Problem."""
        return "" if self.keys is None else self.keys.check(headers.get("authorization"))

    def spend(self, caller: str, *, tokens: int) -> None:
        """Count a request against the limits of the caller's key. Raises Problem."""
        if self.keys is not None:
            self.keys.spend(caller, tokens=tokens)

    async def decide(self, asked: Asked, *, caller: str) -> DecisionReply:
        """Have one request answered.

        Raises:
            Problem: Why not, and whether later.
        """
        ask, limit_s = asked.ask, self.limits.deadline_s
        try:
            tokens = await self._measure(ask)
        except EngineError as error:
            raise of_engine(error) from error
        engine = self.engine
        if engine is None:
            raise problem(
                503, "unavailable_error", f"no worker of {self.name} is ready", retry_s=1.0
            )
        self.load.admit(tokens, seconds=limit_s)
        self.spend(caller, tokens=tokens)

        async def decide() -> DecisionReply:
            # who asked has gone by the time that a worker which stands still is found silent
            with self.load.under_way(tokens), anyio.move_on_after(limit_s + _MORE_S):
                return await self._sharing.decide(
                    engine, ask, affinity=asked.affinity, seconds=limit_s
                )
            raise DecisionExpired(
                f"no answer in {limit_s:g} s; allow more time or ask less at once"
            )

        try:
            if self._sessions is None:
                reply = await decide()
            else:
                reply = await self._sessions.keep(asked, caller=caller, decide=decide)
        except EngineError as error:
            raise of_engine(error) from error
        except StoreError as error:
            raise of_store(error) from error
        self.metrics.answered(reply, questions=len(ask.fields))
        return reply

    def fail_all(self, error: EngineError) -> None:
        """End all decisions that are under way."""
        self._sharing.fail_all(error)

    async def _measure(self, ask: Ask) -> int:
        """Give the tokens of all records; raises RecordTooLong or BadRequest."""
        if len(ask.state) > _LONG:
            longest = await anyio.to_thread.run_sync(self.model.measure, ask)
        else:
            longest = self.model.measure(ask)
        window = self.model.window
        if ask.max_length is None and longest > window:
            raise RecordTooLong(
                f"state and question have {longest} tokens, this model reads {window};"
                " shorten the state, or send x_max_length to have its end cut"
            )
        return min(longest, ask.max_length or window)
