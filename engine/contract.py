"""The wire contract of a decision: what goes over the queue, and what comes back.

A question becomes a *field* of a record, its texts already rendered (`engine/records.py`), so that
nothing on the wire depends on how a JSON value is parsed. The request's identity is the bytes of
its `Ask` (`encode_ask`): the log keeps their length and SHA-256 and can make them again.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from games.questions import QuestionType

Form = Literal["independent", "joint"]
"""`independent`: each question alone behind the state. `joint`: all in one record, as released."""

RecordKind = Literal["neutral", "release"]
"""`neutral`: an independent question is always FIELD 1 with the id `q`. `release`: as released."""


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """One question as the record shows it, options in model order.

    Attributes:
        option_ids: One id per option, in model order (choice: sorted by code point).
        option_texts: The rendered option objects, e.g. `{"option_id":"left"}`.
    """

    id: str
    type: QuestionType
    instruction: str
    option_ids: tuple[str, ...]
    option_texts: tuple[str, ...]


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """State and questions; all that an answer depends on, besides the bundle.

    Attributes:
        state: The state's text.
        public_end: Where the part of `state` ends that other requests share, in characters.
        max_length: The caller's wish to cut the state's end to this many tokens of record; None
            refuses a record that is longer than the window.
        salt: Keeps the reuse of one tenant apart from another's.
    """

    state: str
    fields: tuple[Field, ...]
    form: Form = "independent"
    record: RecordKind = "neutral"
    public_end: int = 0
    max_length: int | None = None
    salt: str = ""


class DecisionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One message of the work queue.

    Attributes:
        id: The decision's id; its answers are deduplicated by it.
        attempt: From 1; rises with every publication.
        source: Names the log or the gateway that waits; a subject token.
        affinity: Requests of one key go to one worker (the match's id, for matches).
        remaining_s: Seconds left to answer, counted from when the message was sent.
        explain: Return token ids, spans and logits too.
    """

    id: str
    attempt: int
    source: str
    affinity: str
    remaining_s: float
    ask: Ask
    explain: bool = False


class Prime(msgspec.Struct, frozen=True, kw_only=True):
    """A state that is likely to be asked about, to be read ahead. Nobody waits for it.

    Attributes:
        affinity: As in the requests to come; a newer prime of the same key replaces it.
        state, public_end, salt: As in their `Ask`.
    """

    affinity: str
    state: str
    public_end: int = 0
    salt: str = ""


class Primed(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a prime.

    Attributes:
        tokens: Of the state, as far as they can be reused.
        tokens_read: As many as were read for it: none of a known state.
        steps: Engine steps from the first that read a part of it to the last; 0 for a known state.
        overtaken: A longer state came before it was read.
    """

    tokens: int
    tokens_read: int = 0
    steps: int = 0
    overtaken: bool = False


class FieldAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Probabilities of one field's options, in model order."""

    id: str
    option_ids: tuple[str, ...]
    probabilities: tuple[float, ...]
    logits: tuple[float, ...] | None = None
    question_span: tuple[int, int] | None = None
    option_spans: tuple[tuple[int, int], ...] | None = None


class Failure(msgspec.Struct, frozen=True):
    """An error on the wire; see `engine.errors.from_failure`."""

    code: str
    message: str


class DecisionReply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One message of the answers stream: answers, or the failure that replaces them.

    Attributes:
        tokens: Tokens of all records of this decision together.
        tokens_read, tokens_reused: They sum to `tokens`.
        steps: Engine steps from the first that read a part of it to the one that answered.
        missed: Why less was reused than could have been; empty if nothing was missed.
        truncated: State tokens cut on the caller's wish.
        queue_ms: From the publication to the worker's pull, on the broker's clock.
        engine_ms: From the worker's pull to the answer.
        fingerprint: Engine, base, adapter, head and tokenizer, as short hashes.
        input_ids: The record's token ids, when asked to explain (joint form).
    """

    id: str
    attempt: int
    answers: tuple[FieldAnswer, ...] = ()
    failure: Failure | None = None
    tokens: int = 0
    tokens_read: int = 0
    tokens_reused: int = 0
    steps: int = 0
    missed: str = ""
    truncated: int = 0
    queue_ms: float = 0.0
    engine_ms: float = 0.0
    fingerprint: str = ""
    input_ids: tuple[int, ...] | None = None


_ask_encoder = msgspec.json.Encoder()
_ask_decoder = msgspec.json.Decoder(Ask)


def encode_ask(ask: Ask) -> bytes:
    """Give the canonical bytes of an ask: JSON in field order, no spaces, UTF-8.

    Raises:
        UnicodeEncodeError: A text holds a lone surrogate; `records.py` refuses these earlier.
    """
    return _ask_encoder.encode(ask)


def decode_ask(data: bytes) -> Ask:
    """Read the bytes of an ask; raises msgspec.DecodeError or msgspec.ValidationError."""
    return _ask_decoder.decode(data)
