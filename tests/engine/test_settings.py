from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from engine.settings import (
    PROFILES,
    Size,
    WorkerSettings,
    decode_settings,
    decode_value,
    encode_settings,
    profile_values,
)

MIB, GIB = 1 << 20, 1 << 30


@pytest.mark.parametrize(
    ("text", "size"),
    [("20GiB", 20 * GIB), ("0.5 gib", GIB // 2), ("24GB", 24 * 10**9), ("3MiB", 3 * MIB), (7, 7)],
)
def test_sizes(text: str | int, size: int) -> None:
    assert Size.parse(text) == size


@pytest.mark.parametrize("text", ["", "GiB", "0", "-1GiB", "1TiB", "nan", "1e3"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"{text}: write it as 32GiB")):
        Size.parse(text)


def test_settings_travel_whole_between_processes() -> None:
    settings = WorkerSettings(
        window=9, kv_cache_memory=Size(5), draft=Path("a/b"), head_device="cpu", state_dtype="bf16"
    )
    assert decode_settings(encode_settings(settings)) == settings


def test_a_profile_is_a_set_of_worker_settings() -> None:
    for name in PROFILES:
        values = profile_values(name)
        settings = msgspec.convert(values, WorkerSettings, dec_hook=decode_value)
        assert settings.window is not None
        assert set(values) == {"window", "max_seqs", "kv_cache_dtype"}


def test_a_record_is_no_longer_than_the_window() -> None:
    both = WorkerSettings(window=100, max_record_tokens=60)
    assert (both.window_of(1000), both.record_limit(1000)) == (100, 60)
    assert (both.window_of(50), both.record_limit(50)) == (50, 50)
    assert WorkerSettings(window=100).record_limit(1000) == 100
    assert WorkerSettings(max_record_tokens=60).window_of(10**6) == 32768
