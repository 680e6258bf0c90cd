"""Events as bytes: canonical JSON, checked on the way in, upcast on the way out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from store.errors import BadEvent
from store.events import SCHEMA, Event

UPCASTERS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}
"""How an event's JSON object of each older schema becomes one of the next. None is older yet."""

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Event)


def encode(event: Event) -> bytes:
    """Give an event's bytes: JSON in field order, defaults left out, no spaces, UTF-8.

    Raises:
        BadEvent: It would not read back equal: a NaN or infinity (JSON has none), a lone
            surrogate, a value of another type than the field's.
    """
    try:
        payload = _encoder.encode(event)
        if _decoder.decode(payload) == event:
            return payload
        why = "it reads back as another event (NaN, infinity, or a list in a tuple's place)"
    except (msgspec.MsgspecError, UnicodeError, TypeError) as error:
        why = str(error)
    raise BadEvent(f"a {type(event).__name__} event cannot be stored: {why}; nothing was appended")


def decode(schema: int, payload: bytes) -> Event:
    """Read an event of this or an older schema.

    Raises:
        msgspec.MsgspecError: The bytes are not an event.
        LookupError: There has never been such a schema.
    """
    if schema == SCHEMA:
        return _decoder.decode(payload)
    fields = msgspec.json.decode(payload)
    for step in range(schema, SCHEMA):
        fields = UPCASTERS[step](fields)
    return msgspec.convert(fields, Event)
