"""Another System One server as the model: what `systemone:URL[,model=...][,key-file=...]` says."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from engine.errors import BadRequest

PREFIX: Final = "systemone:"
ROUTE: Final = "/v1/systemone"


class RemoteSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What `--model systemone:URL,name=value,...` can say.

    Attributes:
        url: Where requests go: with a path as it is, else with the API's route behind it.
        model: The name to ask for.
        key_file: Its first line is sent as the key.
        window: Tokens that a record may have, four characters each.
    """

    url: str
    model: str = "jev-latest"
    key_file: Path | None = None
    window: int = 32_768


def parse_remote(spec: str) -> RemoteSettings:
    """Read a spec.

    Raises:
        BadRequest: It has no http URL, or a setting that there is not.
    """
    url, *items = spec.removeprefix(PREFIX).split(",")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise BadRequest(f"--model {spec}: name a server, systemone:https://HOST[:PORT]")
    if parts.username or parts.password:
        raise BadRequest("--model systemone:...: keep the key out of the URL; give key-file=FILE")
    values: dict[str, Any] = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not equals or name not in ("model", "key-file", "window"):
            raise BadRequest(f"--model {spec}: {item!r} is none of model=, key-file=, window=")
        values[name.replace("-", "_")] = value
    if "window" in values:
        if not values["window"].isdecimal() or int(values["window"]) < 1:
            raise BadRequest(f"--model {spec}: window is a number of tokens")
        values["window"] = int(values["window"])
    if "key_file" in values:
        values["key_file"] = Path(values["key_file"]).expanduser()
    path = parts.path.rstrip("/") or ROUTE
    return RemoteSettings(url=parts._replace(path=path).geturl(), **values)


def content_hash(settings: RemoteSettings) -> str:
    """Give 12 hex digits that tell one such model from another; the key is no part of it."""
    named = f"{PREFIX}{settings.url},{settings.model}"
    return hashlib.sha256(named.encode()).hexdigest()[:12]
