"""What goes wrong over HTTP, as System One clients expect to read it.

A request at fault gets 4xx, so that no client sends it again; what may succeed later gets 429 or
503 with a time to wait, which clients honour up to their own budget of 30 s.
"""

from __future__ import annotations

import math
from typing import Any, Final

import msgspec

from engine.errors import (
    BadRequest,
    DecisionExpired,
    EngineError,
    NoWorker,
    QueueFull,
    QueueUnavailable,
    RecordTooLong,
    RequestTooLarge,
)
from store.errors import StoreError

LONGEST_WAIT_S: Final = 29.0  # clients give up at once when told to wait beyond their budget
_RETRY_S: Final = 1.0


class Problem(Exception):
    """An answer that is an error.

    Attributes:
        status: The HTTP status.
        body: The JSON document.
        headers: Further headers.
        code: For metrics and the log.
    """

    def __init__(
        self, status: int, body: dict[str, Any], headers: dict[str, str], *, code: str
    ) -> None:
        super().__init__(f"{status} {code}")
        self.status = status
        self.body = body
        self.headers = headers
        self.code = code


def problem(
    status: int, error_type: str, message: str, *, retry_s: float | None = None, **headers: str
) -> Problem:
    """Give an error of the shape `{"detail": {"error_type", "message"}}`.

    Args:
        status: The HTTP status.
        error_type: The kind, as clients know it.
        message: One sentence: what is wrong, and what to do.
        retry_s: Seconds after which the same request may succeed.
        **headers: Further headers, underscores for hyphens.
    """
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    sent |= retry_headers(retry_s)
    body = {"detail": {"error_type": error_type, "message": message}}
    return Problem(status, body, sent, code=error_type)


def retry_headers(seconds: float | None) -> dict[str, str]:
    """Say when to ask again, in both ways that clients read."""
    if seconds is None:
        return {}
    wait_s = min(max(seconds, 0.1), LONGEST_WAIT_S)
    return {"retry-after-ms": str(round(wait_s * 1000)), "retry-after": str(math.ceil(wait_s))}


def invalid(message: str, place: tuple[str | int, ...] = (), kind: str = "value_error") -> Problem:
    """Give a 422 that says where in the body the fault is."""
    loc = ["body", *(_sendable(key) for key in place)]
    return Problem(
        422,
        {"detail": [{"loc": loc, "msg": _sendable(message), "type": kind}]},
        {},
        code="validation_error",
    )


def of_engine(error: EngineError) -> Problem:
    """Give what an engine's error is over HTTP."""
    message = str(_sendable(str(error)))
    match error:
        case RecordTooLong() | RequestTooLarge():
            return problem(413, "max_tokens_exceeded", message)
        case BadRequest():
            return invalid(message, error.place)
        case QueueFull() | QueueUnavailable() | NoWorker() | DecisionExpired():
            return problem(503, "unavailable_error", message, retry_s=_RETRY_S)
        case _:
            return problem(500, "internal_error", message)


def of_store(error: StoreError) -> Problem:
    """Give what it is over HTTP that an answer cannot be kept; it may be again soon."""
    log_error = problem(503, "unavailable_error", str(_sendable(str(error))), retry_s=_RETRY_S)
    log_error.code = error.code
    return log_error


def encode(problem: Problem) -> bytes:
    """Give the bytes of the document."""
    return msgspec.json.encode(problem.body)


def _sendable(key: str | int) -> str | int:
    """Show lone surrogates as escapes: they cannot be sent."""
    return key.encode("utf-8", "backslashreplace").decode() if isinstance(key, str) else key
