from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from engine import release
from engine.bundle import Bundle, write_manifest
from engine.checkup import Check, Memory, examine_bundle, memory_line, release_line
from engine.manifest import Part, file_entry
from engine.release import RELEASES, Release
from engine.settings import GIB, WorkerSettings
from tests.support.bundles import ORACLE, adapter_bundle, tuned_bundle

HERE = Memory("this machine", 16 * GIB, 8 * GIB, gpu=False)
CARD = Memory("a card", 24 * GIB, 23 * GIB, gpu=True)


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    return adapter_bundle(tmp_path / "b")


def lines(path: Path, memory: Memory | None = HERE) -> dict[str, Check]:
    found = {check.name: check for check in examine_bundle(path, memory, WorkerSettings())}
    for check in found.values():
        assert check.status == "ok" or check.remedy
        assert "\n" not in check.detail
    return found


def rewrite(bundle: Bundle, **changes: Any) -> None:
    manifest = msgspec.structs.replace(bundle.manifest, **changes)
    (bundle.path / "bundle.json").write_bytes(msgspec.json.encode(manifest))


def test_a_sound_bundle_is_ok_in_every_line(bundle: Bundle) -> None:
    found = lines(bundle.path)
    assert list(found) == ["model", "base", "head", "adapter", "tokenizer", "release", "memory"]
    assert {check.status for check in found.values()} == {"ok"}
    assert "hidden size 128, 1,024 rows of vocabulary, window 32,768" in found["base"].detail
    assert "122 tensors of width 64" in found["head"].detail
    assert "lm_head has 1,024 rows of 128" in found["head"].detail
    assert "23 matrices at rank 8, 83,072 parameters" in found["adapter"].detail
    assert "993 tokens, splits text as Qwen2 does" in found["tokenizer"].detail
    assert "not a released Clef" in found["release"].detail


def test_a_bundle_without_adapter_says_so(tmp_path: Path) -> None:
    found = lines(tuned_bundle(tmp_path / "t").path, None)
    assert found["adapter"].detail == "none: the base holds the tuned weights"
    assert "memory" not in found


def test_altered_files_are_the_only_line(bundle: Bundle) -> None:
    assert bundle.adapter is not None
    (bundle.adapter / "adapter_config.json").write_text("{}")
    (check,) = lines(bundle.path).values()
    assert (check.name, check.status) == ("model", "error")
    assert check.remedy == "make the bundle again"


def test_each_part_that_does_not_fit_has_its_own_line(bundle: Bundle, tmp_path: Path) -> None:
    """Several faults at once: each is named, and no other line suffers."""
    head = Path(shutil.copytree(ORACLE / "clef", tmp_path / "head"))
    config = json.loads((head / "joint_head_config.json").read_text())
    (head / "joint_head_config.json").write_text(json.dumps(config | {"hidden_size": 256}))
    tokenizer = json.loads((ORACLE / "clef" / "tokenizer.json").read_text())
    tokenizer["model"]["vocab"]["too far"] = 5000
    (head / "tokenizer.json").write_text(json.dumps(tokenizer))

    def part(folder: Path, names: dict[str, Any]) -> Part:
        return Part(str(folder), {name: file_entry(folder / name) for name in names})

    manifest = bundle.manifest
    rewrite(
        bundle,
        head=part(head, manifest.head.files),
        tokenizer=part(head, manifest.tokenizer.files),
        adapter_rank=4,
        head_config=msgspec.structs.replace(manifest.head_config, hidden_size=256),
    )
    found = lines(bundle.path)
    assert {name: check.status for name, check in found.items()} == {
        "model": "ok",
        "base": "ok",
        "head": "error",
        "adapter": "error",
        "tokenizer": "error",
        "release": "ok",
    }
    assert found["head"].remedy == "use the head with its own base"
    assert "the adapter's rank is not 4" in found["adapter"].detail
    assert "5001 tokens, the base knows 1024" in found["tokenizer"].detail


def test_another_regex_in_the_file_is_a_warning(bundle: Bundle, tmp_path: Path) -> None:
    folder = tmp_path / "tokenizer"
    folder.mkdir()
    text = (ORACLE / "clef" / "tokenizer.json").read_text()
    (folder / "tokenizer.json").write_text(text.replace(r"?\\p{L}+|", r"?[\\p{L}\\p{M}]+|"))
    assert (folder / "tokenizer.json").read_text() != text
    write_manifest(
        bundle.path,
        name="b",
        base=bundle.base,
        head=bundle.head.parent,
        tokenizer=folder,
        adapter=bundle.adapter,
    )
    check = lines(bundle.path)["tokenizer"]
    assert check.status == "warning"
    assert "joins combining marks to letters" in check.detail


@pytest.fixture
def released(monkeypatch: pytest.MonkeyPatch) -> Release:
    """Let the oracle's tuned model be a release."""
    digests = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in (ORACLE / "clef").iterdir()
        if path.name in RELEASES["clef"].digests
    }
    tiny = Release(name="tiny", repository="someone/tiny", revision="12345678", digests=digests)
    monkeypatch.setattr(release, "RELEASES", {"tiny": tiny})
    return tiny


def test_a_released_model_is_named(released: Release, bundle: Bundle, tmp_path: Path) -> None:
    check = release_line(tuned_bundle(tmp_path / "t"))
    assert check.status == "ok"
    assert check.detail == "this is the real release: 7 files are those of someone/tiny at 1234567"
    # of a bundle with an adapter the tuned configuration is known only from its extraction
    check = release_line(bundle)
    assert check.status == "ok"
    assert check.detail.endswith("not on record: config.json, model.safetensors.index.json")


def test_an_extracted_bundle_knows_what_it_was_made_from(released: Release, tmp_path: Path) -> None:
    from engine.extract.job import Options, extract

    out = tmp_path / "e"
    bundle = extract(ORACLE / "base", ORACLE / "clef", out, Options(), lambda *_: None)
    assert "7 files are those of someone/tiny" in release_line(bundle).detail
    tuned = Path(shutil.copytree(ORACLE / "clef", tmp_path / "tuned"))
    config = (tuned / "config.json").read_text()
    (tuned / "config.json").write_text(config + "\n")
    other = extract(ORACLE / "base", tuned, tmp_path / "o", Options(), lambda *_: None)
    check = release_line(other)
    assert check.status == "warning"
    assert check.detail.endswith("but other files are not: config.json")
    assert check.remedy.startswith("ostinato fetch tiny")


@pytest.mark.parametrize(
    ("memory", "status", "says"),
    [
        (HERE, "ok", "the model takes 0.0 GiB, 8.0 of 16.0 GiB are free on this machine"),
        (Memory("this machine", GIB, 1 << 20, gpu=False), "error", "GiB are missing"),
        (CARD, "ok", "room for 32,768 tokens"),
        (Memory("a card", 24 * GIB, 20 * GIB, gpu=True), "warning", "a worker wants 22.1 GiB"),
        (Memory("a card", 24 * GIB, 1 << 20, gpu=True), "error", "a worker wants 22.1 GiB"),
        (Memory("a card", GIB // 2, GIB // 2, gpu=True), "error", "GiB are missing"),
    ],
)
def test_room_is_compared_with_the_plan(
    memory: Memory, status: str, says: str, bundle: Bundle
) -> None:
    check = memory_line(bundle, memory, WorkerSettings())
    assert check.status == status
    assert says in check.detail
    assert check.status == "ok" or check.remedy
