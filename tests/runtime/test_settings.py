from __future__ import annotations

from pathlib import Path

import pytest

from engine.settings import Size, WorkerSettings
from runtime.errors import BadSettings
from runtime.settings import Settings, load_settings


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_defaults() -> None:
    assert load_settings(environment={}) == Settings()


def test_file_then_environment_then_flags(folder: Path) -> None:
    (folder / "ostinato.toml").write_text('deadline_s = 1\nconcurrency = 2\nfallback = "pass"\n')
    environment = {"OSTINATO_CONCURRENCY": "3", "OSTINATO_FALLBACK": "random", "HOME": "/"}
    settings = load_settings(environment=environment, fallback="previous", window=None)
    assert settings == Settings(deadline_s=1.0, concurrency=3, fallback="previous")


def test_a_profile_goes_behind_everything_that_is_set(folder: Path) -> None:
    fast = load_settings(environment={}, profile="fast")
    assert (fast.window, fast.max_seqs, fast.kv_cache_dtype) == (65536, 8, "auto")
    (folder / "ostinato.toml").write_text('profile = "long"\nmax_seqs = 3\nstate_dtype = "fp16"\n')
    environment = {"OSTINATO_WINDOW": "1000", "OSTINATO_KV_CACHE_MEMORY": "2GiB"}
    settings = load_settings(environment=environment, kv_cache_dtype="auto")
    assert settings.worker == WorkerSettings(
        window=1000,
        max_seqs=3,
        kv_cache_dtype="auto",
        kv_cache_memory=Size(2 << 30),
        state_dtype="fp16",
    )
    assert load_settings(environment={}).kv_cache_dtype == "fp8"
    assert load_settings(environment={"OSTINATO_PROFILE": "huge"}).window == 245760


def test_file_can_be_named(folder: Path) -> None:
    (folder / "one.toml").write_text('home = "~/data"\n')
    (folder / "two.toml").write_text('dtype = "float32"\n')
    named = {"OSTINATO_CONFIG": "one.toml"}
    assert load_settings(environment=named).home == Path.home() / "data"
    assert load_settings(environment=named, config=folder / "two.toml").dtype == "float32"
    with pytest.raises(BadSettings, match=r"three\.toml: No such file"):
        load_settings(config=folder / "three.toml", environment={})


def test_variables_between_processes_are_no_settings() -> None:
    environment = {"OSTINATO_DEBUG": "1", "OSTINATO_PARENT_PIPE": "3"}
    assert load_settings(environment=environment) == Settings()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("deadline = 3", r"ostinato\.toml: deadline is not a setting; did you mean deadline_s"),
        ("[play]\nx = 1", "play is not a setting; there are window, max_record_tokens"),
        ("deadline_s = 0", r"ostinato\.toml: .*deadline_s"),
        ("deadline_s = nan", "deadline_s"),
        ("deadline_s = inf", "deadline_s"),
        ("deadline_s = " + "1" * 400, "deadline_s"),
        ("window = " + "1" * 5000, "not TOML"),
        ("window = " + "[" * 5000, "not TOML"),
        ("window = 1.5", "window"),
        ('fallback = "panic"', "panic"),
        ("concurrency = 0", "concurrency"),
        ('kv_cache_memory = "wide"', "wide: write it as 32GiB.*kv_cache_memory"),
        ("kv_cache_memory = -5", "kv_cache_memory"),
        ('state_dtype = "fp8"', "state_dtype"),
        ('profile = "w4a16"', "profile"),
        ("window = ", "not TOML"),
    ],
)
def test_bad_file_is_refused_with_the_place(folder: Path, text: str, message: str) -> None:
    (folder / "ostinato.toml").write_text(text)
    with pytest.raises(BadSettings, match=message):
        load_settings(environment={})


def test_bad_variable_is_refused_by_name() -> None:
    with pytest.raises(BadSettings, match=r"OSTINATO_WINDO: .*did you mean window"):
        load_settings(environment={"OSTINATO_WINDO": "1"})
    with pytest.raises(BadSettings, match=r"OSTINATO_WINDOW: .*window"):
        load_settings(environment={"OSTINATO_WINDOW": "wide"})


def test_a_bad_flag_is_refused_with_what_there_is() -> None:
    with pytest.raises(BadSettings, match=r"^--fallback: .*'panic'.*there are pause, pass, random"):
        load_settings(environment={}, fallback="panic")
    with pytest.raises(BadSettings, match=r"^--kv-cache-dtype: .*there are auto, fp8, int8"):
        load_settings(environment={}, kv_cache_dtype="int3")
    with pytest.raises(BadSettings, match=r"^--deadline: .*> 0.0 - at `deadline_s`$"):
        load_settings(environment={}, deadline_s=0)


def test_the_nats_server_is_a_setting_with_its_certificates(tmp_path: Path) -> None:
    assert load_settings(environment={}).server is None
    server = load_settings(
        environment={"OSTINATO_NATS": "tls://h:4222", "OSTINATO_NATS_CA": "ca.pem"}, nats=None
    ).server
    assert server is not None
    assert (server.url, server.ca, server.key) == ("tls://h:4222", Path("ca.pem"), None)
