"""An engine without a model: seeded answers, delays and faults, for authors and for tests."""

from __future__ import annotations

import hashlib
import os
import signal

import anyio
import msgspec

from engine.contract import (
    Ask,
    DecisionReply,
    DecisionRequest,
    Field,
    FieldAnswer,
    Prime,
    Primed,
)
from engine.errors import BadRequest, EngineFailed, RecordTooLong
from engine.fleet import Statistics

WINDOW = 32_768
CHARACTERS_A_TOKEN = 4


class MockSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What `--model mock:name=value,...` can say.

    Attributes:
        seed: Other seeds give other answers.
        delay_ms: How long an answer takes.
        fail: Share of decisions, from 0 to 1, that fail; which ones depends on seed and content.
        crash: Share of decisions whose first delivery kills the worker process.
        poison: Share of decisions that kill the worker process whenever they reach it.
        window: Tokens that a record may have, four characters each.
    """

    seed: int = 0
    delay_ms: float = 0.0
    fail: float = 0.0
    crash: float = 0.0
    poison: float = 0.0
    window: int = WINDOW


def parse_mock(spec: str) -> MockSettings:
    """Read `mock` or `mock:seed=1,delay_ms=5,fail=0.01`.

    Raises:
        BadRequest: A name is unknown or a value is out of range.
    """
    _, _, text = spec.partition(":")
    known = ", ".join(MockSettings.__struct_fields__)
    values: dict[str, str] = {}
    for item in filter(None, text.split(",")):
        name, equals, value = item.partition("=")
        if not equals or name not in MockSettings.__struct_fields__:
            raise BadRequest(
                f"--model {spec}: {item!r} is not a setting of the mock; it has {known}"
            )
        values[name] = value
    try:
        settings = msgspec.convert(values, MockSettings, strict=False)
    except msgspec.ValidationError as error:
        raise BadRequest(f"--model {spec}: {error}") from error
    if not all(0 <= share <= 1 for share in (settings.fail, settings.crash, settings.poison)):
        raise BadRequest(f"--model {spec}: fail, crash and poison are shares from 0 to 1")
    if not 0 <= settings.delay_ms <= 3_600_000 or settings.window < 1:
        raise BadRequest(f"--model {spec}: delay_ms is 0 to 3600000, window at least 1")
    return settings


def measure(ask: Ask) -> int:
    """Give the tokens that the mock counts for the longest record of an ask."""
    sizes = [_characters(field) for field in ask.fields]
    fields = sum(sizes) if ask.form == "joint" else max(sizes, default=0)
    return -(-(len(ask.state) + fields) // CHARACTERS_A_TOKEN)


def _characters(field: Field) -> int:
    return len(field.instruction) + sum(map(len, field.option_texts))


class MockBackend:
    """Answers from hashes: the same question about the same state gets the same answer."""

    def __init__(self, settings: MockSettings) -> None:
        self._settings = settings
        self.fingerprint = f"mock-{settings.seed}"
        self.dead = False
        self.statistics = Statistics()

    async def decide(self, request: DecisionRequest) -> DecisionReply:
        """Answer after the delay, or fail as the settings say."""
        settings, ask = self._settings, request.ask
        tokens = measure(ask)
        if tokens > settings.window:
            raise RecordTooLong(f"the record has {tokens} tokens, the window {settings.window}")
        if request.attempt == 1 and self._share("crash", request.id) < settings.crash:
            os.kill(os.getpid(), signal.SIGKILL)
        if settings.delay_ms:
            await anyio.sleep(settings.delay_ms / 1000)
        if self._share("poison", request.id) < settings.poison:
            os.kill(os.getpid(), signal.SIGKILL)
        if self._share("fail", request.id) < settings.fail:
            raise EngineFailed(f"decision {request.id}: the mock was told to fail")
        return DecisionReply(
            id=request.id,
            attempt=request.attempt,
            answers=tuple(self._answer(ask, field) for field in ask.fields),
            tokens=tokens,
            tokens_read=tokens,
            engine_ms=settings.delay_ms,
            fingerprint=self.fingerprint,
        )

    async def prime(self, prime: Prime) -> Primed:
        """Read nothing: there is nothing to be kept."""
        return Primed(tokens=-(-len(prime.state) // CHARACTERS_A_TOKEN))

    def _answer(self, ask: Ask, field: Field) -> FieldAnswer:
        """Weigh each option by a hash of state, instruction and the option itself."""
        weights = [
            0.05 + self._share(ask.state, field.instruction, text) ** 3
            for text in field.option_texts
        ]
        total = sum(weights)
        return FieldAnswer(
            id=field.id,
            option_ids=field.option_ids,
            probabilities=tuple(weight / total for weight in weights),
        )

    def _share(self, *parts: str) -> float:
        text = "\0".join((str(self._settings.seed), *parts))
        digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") / 2**64

    async def close(self) -> None:
        """Nothing is held."""
