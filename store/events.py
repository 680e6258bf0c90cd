"""What a match's log is made of.

Events are facts, written once. A field may be added with a default; a change of meaning raises
`SCHEMA` and adds an upcaster in `store/codec.py`, so that old logs stay readable for ever.
Hashes are lower-case hex of SHA-256. `views` has one hash per seat (see `runtime/fold.py`).
"""

from __future__ import annotations

from typing import Literal

import msgspec

from games.questions import Answer, Question

SCHEMA = 1

Fallback = Literal["pause", "pass", "random", "previous"]
"""What a match does when a decision cannot be had: stop and wait to be resumed, take the game's
`pass` option, draw with the match's seed, or repeat the seat's previous action if still legal."""

How = Literal["agent", "decision", "forced", "fallback", "parent"]
"""Who chose: an agent's own code, the answer of a decision, no choice at all, a fallback, or
whoever chose in the match that this one goes on from."""


class Parent(msgspec.Struct, frozen=True, kw_only=True):
    """Where a fork begins.

    Attributes:
        match: The match that it goes on from.
        version: The last event of it that counts.
        hash: Of that event, so that the parent can be told from another match of its name.
        turns: How many turns, chance included, both have in common.
    """

    match: str
    version: int
    hash: str
    turns: int


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """Where a match was recorded before it was imported.

    Attributes:
        format: Of the file: `pgn` or `phh`.
        file: Its name, without folders.
        number: Which of its matches it was, from 1.
        tags: What it says of the match besides players and moves, such as place, date and result.
    """

    format: str
    file: str
    number: int
    tags: dict[str, str]


class ChatCost(msgspec.Struct, frozen=True, kw_only=True):
    """What a chat agent's answer took.

    Attributes:
        model: As the server named it.
        tokens_read, tokens_reused: Of the prompt; they sum to it.
        tokens_written: Of the answer.
        total_ms: From before the request to after the answer.
    """

    model: str
    tokens_read: int
    tokens_reused: int
    tokens_written: int
    total_ms: float


class _Event(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type"):
    pass


class MatchStarted(_Event, frozen=True, kw_only=True, tag="match_started"):
    """Version 0 of every match: all that a replay needs besides the code."""

    game: str
    rules_version: int
    layout_version: int
    seats: tuple[str, ...]
    """The agent of each seat, as it was named."""
    seed: int
    fallback: Fallback
    overflow: Literal["stop", "rebase"]
    deadline_s: float
    window: int | None
    """Tokens that a record may have; None when no seat asks a model."""
    state_hash: str
    views: tuple[str, ...]
    parent: Parent | None = None
    """For a fork: its first turns are repeated from there, so that it replays without it."""
    source: Source | None = None
    """For a match that was not played here; what chance did is then as recorded, not drawn."""


class ChanceDrawn(_Event, frozen=True, kw_only=True, tag="chance_drawn"):
    """Chance moved.

    `draw` is the number in [0, 1) from the match's seed that chose `outcome`; None where the
    outcome is that of an imported match.
    """

    outcome: str
    draw: float | None
    state_hash: str
    views: tuple[str, ...]


class DecisionRequested(_Event, frozen=True, kw_only=True, tag="decision_requested"):
    """A question is about to be asked; the log is the outbox. The state's text is re-derived."""

    decision: str
    seat: int
    part: int
    """Which part of a factored action is asked for; 0 otherwise. Equals `len(chosen)`."""
    questions: tuple[Question, ...]
    form: Literal["independent", "joint"]
    record: Literal["neutral", "release"]
    public_end: int
    length: int
    """Bytes of the request."""
    sha256: str
    deadline_s: float
    fallback: Fallback
    bundle: str
    chosen: tuple[str, ...] = ()
    """Labels of the parts of a factored action that were chosen before this one."""
    draw: float | None = None
    """The policy's number in [0, 1) for the last of them that an answer chose, if one was drawn."""
    option_texts: tuple[tuple[str, ...], ...] = ()
    """Each question's options as the record shows them, where a client described some by JSON."""
    max_length: int | None = None
    """Tokens to which a client let the state's end be cut."""


class DecisionAnswered(_Event, frozen=True, kw_only=True, tag="decision_answered"):
    """The one answer that counts for a decision. `answers` follow the request's questions."""

    decision: str
    attempt: int
    answers: tuple[Answer, ...]
    tokens_read: int
    tokens_reused: int
    queue_ms: float
    engine_ms: float
    total_ms: float
    """From before the request was published to after its answer had come."""
    fingerprint: str


class DecisionFailed(_Event, frozen=True, kw_only=True, tag="decision_failed"):
    """No answer will be waited for any more: expired, refused, no worker, engine failed."""

    decision: str
    code: str
    message: str


class AnswerDiscarded(_Event, frozen=True, kw_only=True, tag="answer_discarded"):
    """An answer came that changes nothing."""

    decision: str
    reason: Literal["late", "duplicate", "unknown"]


class ActionRefused(_Event, frozen=True, kw_only=True, tag="action_refused"):
    """An agent named an action that is not legal; its turn is not consumed."""

    seat: int
    action: str
    message: str
    chat: ChatCost | None = None
    """Of the answer that named it, from an agent that chats."""


class TurnTaken(_Event, frozen=True, kw_only=True, tag="turn_taken"):
    """A seat acted. `draw` is the policy's number in [0, 1), where one was drawn."""

    seat: int
    action: str
    how: How
    state_hash: str
    views: tuple[str, ...]
    decision: str | None = None
    draw: float | None = None
    note: str = ""
    """Why, for a fallback."""
    chat: ChatCost | None = None
    """Of the answer that named the action, from an agent that chats."""


class EpochStarted(_Event, frozen=True, kw_only=True, tag="epoch_started"):
    """The text was started anew because the next record would not have fitted the window."""

    epoch: int
    state_hash: str
    views: tuple[str, ...]


class MatchPaused(_Event, frozen=True, kw_only=True, tag="match_paused"):
    """Fallback `pause`: nothing goes on until the match is resumed."""

    reason: str


class MatchEnded(_Event, frozen=True, kw_only=True, tag="match_ended"):
    """The rules ended the match (`terminated`), or it was cut (`truncated`, with the reason)."""

    end: Literal["terminated", "truncated"]
    returns: tuple[float, ...]
    reason: str = ""


Event = (
    MatchStarted
    | ChanceDrawn
    | DecisionRequested
    | DecisionAnswered
    | DecisionFailed
    | AnswerDiscarded
    | ActionRefused
    | TurnTaken
    | EpochStarted
    | MatchPaused
    | MatchEnded
)
