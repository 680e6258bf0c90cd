"""API keys: a TOML file with their SHA-256, read again when it changes.

[alice]
sha256 = "..."                 # of the key; `ostinato api-key alice` makes both
requests_per_minute = 600      # optional
tokens_per_minute = 2_000_000  # optional
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
import time
import tomllib
from pathlib import Path
from typing import Annotated, Final

import msgspec

from runtime.errors import BadInput
from runtime.http.problems import problem

log = logging.getLogger(__name__)

_LOOK_S: Final = 1.0  # at most this often the file's time is looked at
_PREFIX: Final = "ost_"

_Count = Annotated[int, msgspec.Meta(ge=1)]


class Key(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry of the file."""

    sha256: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
    requests_per_minute: _Count | None = None
    tokens_per_minute: _Count | None = None


def make_key(name: str) -> tuple[str, str]:
    """Make a key; give it and the entry to put into the file.

    Raises:
        BadInput: The name does not do in a TOML table and a metric.
    """
    if not name.isascii() or not name.replace("-", "").replace("_", "").isalnum():
        raise BadInput(f"{name!r} is no name for a key; use letters, digits, - and _")
    key = _PREFIX + secrets.token_urlsafe(32)
    return key, f'[{name}]\nsha256 = "{_digest(key)}"\n'


class Keys:
    """The keys of a file.

    Args:
        path: The file.

    Raises:
        BadInput: It cannot be read, or holds something that is no key.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp = _stamp(path)
        self._looked = time.monotonic()
        self._keys = _read(path)
        self._spent: dict[tuple[str, str], _Allowance] = {}

    def check(self, authorization: str | None) -> str:
        """Give the name of the key in an Authorization header.

        Raises:
            Problem: 403 without a key, 401 with one that is not in the file.
        """
        self._look()
        scheme, _, token = (authorization or "").partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            raise problem(403, "authentication_error", "a key is needed: Authorization: Bearer KEY")
        digest, found = _digest(token), ""
        for name, key in self._keys.items():  # all of them: the time tells nothing
            if hmac.compare_digest(digest, key.sha256):
                found = name
        if not found:
            raise problem(
                401, "authentication_error", "this key is not known here", www_authenticate="Bearer"
            )
        return found

    def spend(self, name: str, *, tokens: int) -> None:
        """Count one request of so many tokens against the limits of a key.

        Raises:
            Problem: 429; nothing was counted.
        """
        key = self._keys.get(name)
        if key is None:
            return
        limits = {
            "requests": (key.requests_per_minute, 1),
            "tokens": (key.tokens_per_minute, tokens),
        }
        wanted: list[tuple[_Allowance, int]] = []
        for unit, (limit, amount) in limits.items():
            if limit is None:
                continue
            allowance = self._spent.get((name, unit))
            if allowance is None or allowance.limit != limit:
                allowance = self._spent[name, unit] = _Allowance(limit)
            wait_s = allowance.wait_s(amount)
            if wait_s > 0:
                raise problem(
                    429,
                    "rate_limit_error",
                    f"key {name} may spend {limit} {unit} a minute; wait {wait_s:.1f} s",
                    retry_s=wait_s,
                )
            wanted.append((allowance, amount))
        for allowance, amount in wanted:
            allowance.take(amount)

    def _look(self) -> None:
        now = time.monotonic()
        if now - self._looked < _LOOK_S:
            return
        self._looked = now
        try:
            stamp = _stamp(self._path)
            if stamp != self._stamp:
                self._keys = _read(self._path)
                self._stamp = stamp
        except BadInput as error:  # half written, perhaps: the keys stay as they were
            log.warning("the file of keys was not read again", extra={"why": str(error)})


class _Allowance:
    """What may still be spent; it fills up evenly within a minute."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._left = float(limit)
        self._at = time.monotonic()

    def wait_s(self, amount: int) -> float:
        """Give how long until so much may be spent; an amount beyond the limit needs all of it."""
        now = time.monotonic()
        self._left = min(self.limit, self._left + (now - self._at) * self.limit / 60)
        self._at = now
        return (min(amount, self.limit) - self._left) * 60 / self.limit

    def take(self, amount: int) -> None:
        self._left -= amount


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()


def _stamp(path: Path) -> tuple[int, int]:
    try:
        stat = path.stat()
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}; name a readable file of keys") from error
    return stat.st_mtime_ns, stat.st_size


def _read(path: Path) -> dict[str, Key]:
    try:
        keys = msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), dict[str, Key])
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}; name a readable file of keys") from error
    except (ValueError, RecursionError) as error:  # msgspec's is one too
        raise BadInput(
            f"{path}: {error}; an entry is [NAME] with sha256, see `ostinato api-key`"
        ) from error
    if not keys:
        raise BadInput(f"{path}: no key in it; `ostinato api-key NAME` makes one")
    return keys
