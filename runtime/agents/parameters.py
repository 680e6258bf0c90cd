"""Parameters of agents: `NAME=VALUE`, comma between them."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from runtime.errors import UnknownAgent

S = TypeVar("S", bound=msgspec.Struct)


def parse_pairs(agent: str, text: str) -> dict[str, str]:
    """Give the values by name; raises UnknownAgent where something else stands."""
    pairs: dict[str, str] = {}
    for part in filter(None, text.split(",")):
        name, sign, value = part.partition("=")
        name = name.strip().replace("-", "_")
        if not sign or not name.isidentifier() or name in pairs:
            raise UnknownAgent(f"{agent}:{text}: {part!r} is not NAME=VALUE, or comes twice")
        pairs[name] = value.strip()
    return pairs


def parse_settings(agent: str, text: str, kind: type[S]) -> S:
    """Give an agent's settings; raises UnknownAgent for a name or a value that is none."""
    pairs: dict[str, Any] = dict(parse_pairs(agent, text))
    for name in pairs:
        if name not in kind.__struct_fields__:
            known = ", ".join(kind.__struct_fields__) or "none"
            raise UnknownAgent(f"{agent}: no parameter {name!r}; there are {known}")
    try:
        return msgspec.convert(pairs, kind, strict=False)
    except msgspec.ValidationError as error:
        raise UnknownAgent(f"{agent}:{text}: {error}") from error
