"""Settings of a worker: how it loads a model and what it may take of the machine.

`ostinato plan` reads the same ones. A profile is a set of them: a TOML file in `engine/profiles`.
"""

from __future__ import annotations

import re
import tomllib
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args

import msgspec

Dtype = Literal["bfloat16", "float32"]
NumberFormat = Literal["fp32", "fp16", "bf16"]
KvCacheDtype = Literal["auto", "fp8", "int8"]
Speculative = Literal["off", "ngram", "mtp", "dflash2"]
Device = Literal["cpu", "gpu"]
Profile = Literal["fast", "long", "huge"]
PROFILES: Final[tuple[Profile, ...]] = get_args(Profile)

GIB: Final = 1 << 30
DEFAULT_WINDOW: Final = 32_768
CPU_CACHE: Final = 256 << 20
"""Bytes of the cache on a CPU; left to itself vLLM takes nearly all memory of the machine."""

_UNITS: Final = {"": 1, "gib": GIB, "mib": 1 << 20, "gb": 10**9, "mb": 10**6}
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?) ?([gm]i?b|)", re.IGNORECASE)

_Count = Annotated[int, msgspec.Meta(ge=1)]


class Size(int):
    """Bytes."""

    @classmethod
    def parse(cls, text: str | int) -> Size:
        """Read `20GiB`, `512MiB`, `24GB` or a number of bytes; raises ValueError."""
        match = _SIZE.fullmatch(str(text).strip())
        if match is None or not float(match[1]):
            raise ValueError(f"{text}: write it as 32GiB, 512MiB or 24GB")
        return cls(float(match[1]) * _UNITS[match[2].lower()])


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a worker serves a model.

    Attributes:
        window: Longest sequence in tokens, records and chats alike; None takes the smaller of the
            model's and 32,768.
        max_record_tokens: Longest record; None takes the window.
        max_seqs: Sequences in one engine step.
        max_batched_tokens: Tokens in one engine step; longer records are read in chunks.
        chat_share: Chat's part of a step's tokens where decisions want all of them too, and of its
            sequences.
        chat_host: The address on which the worker chats; gateways on other machines need one that
            they reach.
        dtype: Number format of the model; the head is computed in float32 always.
        kv_cache_memory: Bytes for keys, values, linear states and head features; None: 256 MiB on
            a CPU, on a GPU what is free.
        kv_cache_dtype: How keys and values are kept; `auto` is the model's format.
        state_dtype: How the states of linear attention are kept between steps.
        features: How head features are kept; None: in fp32 for a model in float32, else in fp16,
            which rounds ten times less than bf16 in the same room.
        speculative: How chats guess tokens ahead; decisions have nothing to guess.
        draft: Folder of the draft model, for `dflash2`.
        head_device: Where the head scores and its features lie; None: beside the model.
        device: Where the model runs; None: where the installed vLLM runs.
    """

    window: _Count | None = None
    max_record_tokens: _Count | None = None
    max_seqs: _Count = 16
    max_batched_tokens: Annotated[int, msgspec.Meta(ge=16)] = 2048
    chat_share: Annotated[float, msgspec.Meta(gt=0, lt=1)] = 0.25
    chat_host: str = "127.0.0.1"
    dtype: Dtype = "bfloat16"
    kv_cache_memory: Size | None = None
    kv_cache_dtype: KvCacheDtype = "auto"
    state_dtype: NumberFormat = "fp32"
    features: NumberFormat | None = None
    speculative: Speculative = "off"
    draft: Path | None = None
    head_device: Device | None = None
    device: Device | None = None

    @property
    def feature_format(self) -> NumberFormat:
        """How head features are kept."""
        return self.features or ("fp32" if self.dtype == "float32" else "fp16")

    @property
    def longest_record(self) -> int | None:
        """The most tokens of a record that are set; None leaves it to the model."""
        return min((n for n in (self.window, self.max_record_tokens) if n), default=None)

    def window_of(self, longest: int) -> int:
        """Give the window for a model whose own limit is `longest`."""
        return min(self.window or DEFAULT_WINDOW, longest)

    def record_limit(self, longest: int) -> int:
        """Give the most tokens of a record for a model whose own limit is `longest`."""
        return min(self.longest_record or DEFAULT_WINDOW, longest)


def profile_values(name: Profile) -> dict[str, Any]:
    """Give the settings of a profile."""
    file = resources.files("engine") / "profiles" / f"{name}.toml"
    return tomllib.loads(file.read_text(encoding="utf-8"))


def encode_settings(settings: WorkerSettings) -> str:
    """Write settings as JSON, for another process."""
    return msgspec.json.encode(settings, enc_hook=_plain).decode()


def decode_settings(text: str) -> WorkerSettings:
    """Read what `encode_settings` wrote."""
    return msgspec.json.decode(text, type=WorkerSettings, dec_hook=decode_value)


def decode_value(kind: type, value: Any) -> Any:
    """Read the types of settings that JSON and TOML do not have."""
    if kind is Path and isinstance(value, str):
        return Path(value).expanduser()
    if kind is Size and isinstance(value, (str, int)):
        return Size.parse(value)
    return value


def _plain(value: Any) -> Any:
    return int(value) if isinstance(value, int) else str(value)
