"""Asks another System One server over HTTP.

The worker does it in an engine's place, so a match is played, recorded and replayed like any other.
What such a server does not say (tokens reused, a fingerprint) stays out of the record. Forms and
records are the server's own.
"""

from __future__ import annotations

import json
import math
from typing import Any, Final

import anyio
import httpx
import msgspec

from engine.contract import DecisionReply, DecisionRequest, Field, FieldAnswer, Prime, Primed
from engine.errors import BadRequest, EngineFailed, RecordTooLong
from engine.fleet import Statistics
from engine.remote import RemoteSettings

_TRIES: Final = 5
_FIRST_WAIT_S: Final = 0.5  # doubled each time, where the server does not say how long
_LONGEST_WAIT_S: Final = 30.0
_TRY_S: Final = 30.0
_LATER: Final = frozenset((408, 429, 500, 502, 503, 504, 529))  # may succeed when asked again
_ROUNDING: Final = 0.05  # servers show two decimals; their sum may be off by so much


class RemoteBackend:
    """Asks a server.

    Args:
        settings: Which one.
        key: What to send as the key; empty for none.
    """

    fingerprint = ""
    dead = False
    statistics = Statistics()

    def __init__(self, settings: RemoteSettings, key: str = "") -> None:
        self._settings = settings
        headers = {"accept": "application/json", "content-type": "application/json"}
        if key:
            headers["authorization"] = f"Bearer {key}"
        self._client = httpx.AsyncClient(headers=headers, timeout=_TRY_S)

    @classmethod
    async def start(cls, settings: RemoteSettings) -> RemoteBackend:
        """Read the key and see that somebody answers there.

        Raises:
            EngineFailed: The key cannot be read, or nobody answers.
        """
        key = ""
        if settings.key_file is not None:
            try:
                text = await anyio.Path(settings.key_file).read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise EngineFailed(
                    f"{settings.key_file}: {error}; name a readable key-file"
                ) from error
            key = (text.splitlines() or [""])[0].strip()
            if not key or not key.isascii():
                raise EngineFailed(f"{settings.key_file}: its first line is no key")
        backend = cls(settings, key)
        try:
            await backend._client.head(settings.url)
        except httpx.HTTPError as error:
            await backend.close()
            raise EngineFailed(f"{settings.url}: {_why(error)}; is the server there?") from error
        return backend

    async def decide(self, request: DecisionRequest) -> DecisionReply:
        """Ask, and ask again as long as the server says that it may help.

        Raises:
            BadRequest: The server refuses the request.
            EngineFailed: It does not answer, or with what is no answer.
        """
        body = json.dumps(
            {
                "model": self._settings.model,
                "state": request.ask.state,
                "questions": {field.id: _question(field) for field in request.ask.fields},
            },
            ensure_ascii=False,
        ).encode()
        document = _read(await self._post(body, request.id))
        answers = document.get("answers")
        if not isinstance(answers, dict):
            raise EngineFailed(f"{self._settings.url}: a reply without answers")
        usage = document.get("usage")
        tokens = usage.get("input_tokens") if isinstance(usage, dict) else None
        return DecisionReply(
            id=request.id,
            attempt=request.attempt,
            answers=tuple(
                self._answer(field, answers.get(field.id)) for field in request.ask.fields
            ),
            tokens=tokens if type(tokens) is int and tokens >= 0 else 0,
        )

    async def prime(self, prime: Prime) -> Primed:
        """Do nothing: such a server has no call for it."""
        return Primed(tokens=0)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def _post(self, body: bytes, decision: str) -> bytes:
        url, wait_s, said = self._settings.url, _FIRST_WAIT_S, ""
        for number in range(_TRIES):
            if number:
                await anyio.sleep(wait_s)
                wait_s = min(wait_s * 2, _LONGEST_WAIT_S)
            try:
                reply = await self._client.post(url, content=body)
            except httpx.HTTPError as error:
                said = _why(error)
                continue
            if reply.status_code == 200:
                return reply.content
            said = f"status {reply.status_code}: {_message(reply.content)}"
            if reply.status_code == 413:
                raise RecordTooLong(f"{url} refuses the request: {said}")
            if reply.status_code not in _LATER:
                kind = BadRequest if reply.status_code in (400, 415, 422) else EngineFailed
                raise kind(f"{url} refuses the request: {said}")
            wait_s = _retry_after(reply.headers) or wait_s
        raise EngineFailed(f"decision {decision}: {url} did not answer {_TRIES} tries: {said}")

    def _answer(self, field: Field, answer: Any) -> FieldAnswer:
        where = f"{self._settings.url}: question {field.id!r}"
        if not isinstance(answer, dict) or answer.get("type") != field.type:
            raise EngineFailed(f"{where} has no answer of its type")
        if field.type == "noul":
            shown: Any = answer.get("noul")
            values: list[Any] = [shown, 1 - shown] if _is_share(shown) else [None]
        else:
            probabilities = answer.get("probabilities")
            if not isinstance(probabilities, dict):
                raise EngineFailed(f"{where} has no probabilities; this server cannot play")
            values = [probabilities.get(id) for id in field.option_ids]
        if not all(map(_is_share, values)) or abs(sum(values) - 1) > _ROUNDING:
            raise EngineFailed(f"{where} has probabilities that are none: {str(values)[:200]}")
        values = [max(value, 0.0) for value in values]
        total = math.fsum(values)
        return FieldAnswer(
            id=field.id,
            option_ids=field.option_ids,
            probabilities=tuple(value / total for value in values),
        )


def _question(field: Field) -> dict[str, Any]:
    """Give a field as the question that it was made of."""
    question: dict[str, Any] = {"type": field.type, "instructions": field.instruction}
    options = {
        id: json.loads(text).get("description")
        for id, text in zip(field.option_ids, field.option_texts, strict=True)
    }
    question["criteria"] = (
        ["" if text is None else text for text in options.values()]
        if field.type == "score"
        else options
    )
    return question


def _read(data: bytes) -> dict[str, Any]:
    """Read a reply, also one in an envelope `{"result": ..., "success": ...}`."""
    try:
        document = msgspec.json.decode(data)
    except msgspec.DecodeError as error:
        raise EngineFailed(f"the server's reply is no JSON: {error}") from error
    if isinstance(document, dict) and "result" in document and "answers" not in document:
        document = document["result"]
    if not isinstance(document, dict):
        raise EngineFailed("the server's reply is no JSON object")
    return document


def _message(data: bytes) -> str:
    """Find the sentence in an error's body."""
    try:
        value: Any = msgspec.json.decode(data)
    except msgspec.DecodeError:
        return data[:200].decode(errors="replace")
    for name in ("detail", "error", "errors", 0, "message", "msg"):
        if isinstance(value, dict) and name in value:
            value = value[name]
        elif isinstance(value, list) and name == 0 and value:
            value = value[0]
    return str(value)[:200]


def _retry_after(headers: httpx.Headers) -> float | None:
    for name, unit in (("retry-after-ms", 1000), ("retry-after", 1)):
        try:
            seconds = float(headers[name]) / unit
        except (KeyError, ValueError):
            continue
        if math.isfinite(seconds):
            return min(max(seconds, 0.0), _LONGEST_WAIT_S)
    return None


def _is_share(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value) and -1e-9 <= value <= 1 + 1e-9


def _why(error: httpx.HTTPError) -> str:
    return str(error) or type(error).__name__
