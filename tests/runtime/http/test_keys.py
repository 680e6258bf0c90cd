from __future__ import annotations

import os
from pathlib import Path

import pytest

from runtime.errors import BadInput
from runtime.http.keys import Keys, make_key
from runtime.http.problems import Problem


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr("runtime.http.keys.time.monotonic", lambda: now[0])
    return now


def write(path: Path, *names: str, limits: str = "") -> list[str]:
    made = [make_key(name) for name in names]
    path.write_text("\n".join(entry + limits for _, entry in made))
    return [key for key, _ in made]


def refused(keys: Keys, authorization: str | None) -> int:
    with pytest.raises(Problem) as raised:
        keys.check(authorization)
    assert raised.value.body["detail"]["error_type"] == "authentication_error"
    return raised.value.status


def test_keys_are_known_by_their_name_and_stored_as_hashes(tmp_path: Path):
    file = tmp_path / "keys.toml"
    alice, bob = write(file, "alice", "bob")
    assert alice not in file.read_text()
    keys = Keys(file)
    assert keys.check(f"Bearer {alice}") == "alice"
    assert keys.check(f"bearer  {bob} ") == "bob"
    for header in (None, "", "Bearer", "Bearer ", "Basic abc", alice):
        assert refused(keys, header) == 403
    for header in ("Bearer wrong", f"Bearer {alice}x", "Bearer \udcff"):
        assert refused(keys, header) == 401


def test_the_file_is_read_again_when_it_changes(tmp_path: Path, clock: list[float]):
    file = tmp_path / "keys.toml"
    (alice,) = write(file, "alice")
    keys = Keys(file)
    (carol,) = write(file, "carol")
    os.utime(file, ns=(1, 1))
    clock[0] += 2
    assert keys.check(f"Bearer {carol}") == "carol"
    assert refused(keys, f"Bearer {alice}") == 401
    file.write_text("[half")
    clock[0] += 2
    assert keys.check(f"Bearer {carol}") == "carol"
    file.unlink()
    clock[0] += 2
    assert keys.check(f"Bearer {carol}") == "carol"


def test_limits_are_by_key_and_fill_up_again(tmp_path: Path, clock: list[float]):
    file = tmp_path / "keys.toml"
    write(file, "a", limits="requests_per_minute = 3\ntokens_per_minute = 600\n")
    keys = Keys(file)
    keys.spend("a", tokens=300)
    with pytest.raises(Problem) as raised:
        keys.spend("a", tokens=400)
    assert raised.value.status == 429
    assert raised.value.headers == {"retry-after-ms": "10000", "retry-after": "10"}
    clock[0] += 10
    keys.spend("a", tokens=400)  # the refused one took neither tokens nor a request
    clock[0] += 60
    keys.spend("a", tokens=10_000)  # more than a minute has: it takes a whole one
    for _ in range(100):
        keys.spend("b", tokens=1)  # one without limits


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[a]\n",
        "[a]\nsha256 = 'short'\n",
        "[a]\nsha256 = 1\n",
        "a = 1\n",
        f"[a]\nsha256 = '{'0' * 64}'\nrate = 3\n",
        f"[a]\nsha256 = '{'0' * 64}'\ntokens_per_minute = 0\n",
        "not toml",
        f"[a]\ntokens_per_minute = {'1' * 5000}\n",
        f"a = {'[' * 5000}",
    ],
)
def test_bad_files_are_refused_by_name(tmp_path: Path, text: str):
    file = tmp_path / "keys.toml"
    file.write_text(text)
    with pytest.raises(BadInput, match=r"keys\.toml"):
        Keys(file)
    with pytest.raises(BadInput, match="absent"):
        Keys(tmp_path / "absent")


@pytest.mark.parametrize("name", ["", "a b", "a.b", "[x]", "ä", "a\n"])
def test_names_of_keys(name: str):
    with pytest.raises(BadInput):
        make_key(name)
