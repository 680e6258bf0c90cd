"""Errors of the engine.

EngineError                engine/error
├── BadRequest             engine/bad_request        malformed question, lone surrogate, NaN
│   └── RecordTooLong      engine/record_too_long
├── BadBundle              engine/bad_bundle         missing file, wrong hash, parts that do not fit
├── BadWeights             engine/bad_weights        base or tuned weights that make no adapter
├── BadSetting             engine/bad_setting        what vLLM, machine or model cannot do
├── DoesNotFit             engine/does_not_fit       a model that a machine cannot hold
├── NotWritten             engine/not_written        a result that could not be put on disk
├── HubUnavailable         engine/hub_unavailable    the hub gives no answer, or not the release
├── RequestTooLarge        engine/request_too_large  more bytes than the broker takes
├── DecisionExpired        engine/expired
├── QueueFull              engine/queue_full
├── QueueUnavailable       engine/queue_unavailable
├── NoWorker               engine/no_worker
├── EngineFailed           engine/failed             the model gave no usable answer
├── EngineMissing          engine/missing            vLLM is absent or another version
├── BrokerFailed           engine/broker_failed      no nats-server, it does not start
└── BrokerRunning          engine/broker_running     the folder belongs to a live broker

Over the wire an error is its code and message (`contract.Failure`); `from_failure` makes the
error again, so that a caller sees one tree wherever the fault arose.
"""

from __future__ import annotations


class EngineError(Exception):
    """Root of what goes wrong in the engine. `code` is stable; the message names the remedy."""

    code = "engine/error"


class BadRequest(EngineError):
    """The request itself is at fault; asking again will not help.

    Attributes:
        place: Keys and indices that lead to the fault in what was sent, where that is known.
    """

    code = "engine/bad_request"

    def __init__(self, message: str, place: tuple[str | int, ...] = ()) -> None:
        super().__init__(message)
        self.place = place


class RecordTooLong(BadRequest):
    """The record has more tokens than the window; the message has both numbers."""

    code = "engine/record_too_long"


class BadBundle(EngineError):
    """A model bundle is incomplete, altered, or its parts do not belong together."""

    code = "engine/bad_bundle"


class BadWeights(EngineError):
    """Base and tuned weights are damaged, or differ by more than an adapter can hold."""

    code = "engine/bad_weights"


class BadSetting(EngineError):
    """A setting of a worker asks what vLLM, this machine or the model cannot do."""

    code = "engine/bad_setting"


class DoesNotFit(EngineError):
    """The machine cannot hold the model; the message says what to change."""

    code = "engine/does_not_fit"


class NotWritten(EngineError):
    """A result could not be put on disk; what was there before is untouched."""

    code = "engine/not_written"


class HubUnavailable(EngineError):
    """The hub of released models cannot be reached, refuses, or has not what is pinned."""

    code = "engine/hub_unavailable"


class RequestTooLarge(EngineError):
    """The message would exceed what the broker takes; the message has both numbers."""

    code = "engine/request_too_large"


class DecisionExpired(EngineError):
    """No answer came before the deadline."""

    code = "engine/expired"


class QueueFull(EngineError):
    """The queue takes no more requests; slow down and try again."""

    code = "engine/queue_full"


class QueueUnavailable(EngineError):
    """The broker cannot be reached."""

    code = "engine/queue_unavailable"


class NoWorker(EngineError):
    """No live worker holds the bundle."""

    code = "engine/no_worker"


class EngineFailed(EngineError):
    """The model gave no usable answer: it stopped, or its numbers are not finite."""

    code = "engine/failed"


class EngineMissing(EngineError):
    """What a worker needs is not installed here, or is another version than the tested one."""

    code = "engine/missing"


class BrokerFailed(EngineError):
    """The embedded nats-server is missing or did not start."""

    code = "engine/broker_failed"


class BrokerRunning(EngineError):
    """The broker's folder belongs to a live broker; the message names its process."""

    code = "engine/broker_running"


def from_failure(code: str, message: str) -> EngineError:
    """Make the error of a code that came over the wire; unknown codes give an EngineError."""
    pending: list[type[EngineError]] = [EngineError]
    while pending:
        kind = pending.pop()
        if kind.code == code:
            return kind(message)
        pending.extend(kind.__subclasses__())
    return EngineError(f"{code}: {message}")
