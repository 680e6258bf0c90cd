"""What `--model` names, known without loading it."""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from engine import mock, remote
from engine.bundle import Bundle, load_bundle
from engine.contract import Ask
from engine.settings import DEFAULT_WINDOW
from engine.tokens import Encoder


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """A bundle, a mock, or another server.

    Attributes:
        spec: As it was named; a bundle's as an absolute path.
        hash: 12 hex digits of its content; part of a request's subject, so that a worker with
            other weights never takes it.
        window: The most tokens a record may have.
        arbitrary: Its choices mean nothing (random weights, or a mock).
        measure: Gives the tokens of the longest record of an ask. Raises BadRequest.
    """

    spec: str
    name: str
    hash: str
    window: int
    arbitrary: bool
    bundle: Bundle | None
    measure: Callable[[Ask], int]


def served_name(name: str) -> str:
    """Give a model's name as clients write it: letters, digits and `._-` only."""
    return re.sub(r"[^a-zA-Z0-9._-]+", "-", name).strip("-") or "model"


def open_model(spec: str, *, window: int | None = None) -> Model:
    """Read what is known of a model: `mock:...`, `systemone:...` or a bundle's folder.

    Args:
        spec: The model.
        window: A smaller window than the model's own; None takes the smaller of the model's and
            32,768.

    Raises:
        BadBundle: The folder holds no sound bundle.
        BadRequest: A mock or a server has no such setting.
    """
    wanted = window or DEFAULT_WINDOW
    if spec == "mock" or spec.startswith("mock:"):
        settings = mock.parse_mock(spec)
        return Model(
            spec=spec,
            name=spec,
            hash=hashlib.sha256(spec.encode()).hexdigest()[:12],
            window=min(wanted, settings.window),
            arbitrary=True,
            bundle=None,
            measure=mock.measure,
        )
    if spec.startswith(remote.PREFIX):
        server = remote.parse_remote(spec)
        return Model(
            spec=spec,
            name=f"{server.model} at {server.url}",
            hash=remote.content_hash(server),
            window=min(wanted, server.window),
            arbitrary=False,
            bundle=None,
            measure=mock.measure,
        )
    bundle = load_bundle(Path(spec))
    encoder = Encoder(bundle.tokenizer)
    return Model(
        spec=str(Path(spec).absolute()),
        name=bundle.name,
        hash=bundle.hash,
        window=min(wanted, bundle.window),
        arbitrary=bundle.arbitrary,
        bundle=bundle,
        measure=lambda ask: _longest(encoder, ask),
    )


def _longest(encoder: Encoder, ask: Ask) -> int:
    return max(len(record.input_ids) for record in encoder.encode(ask, window=sys.maxsize))
