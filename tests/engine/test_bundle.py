from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.adapter import write_adapter
from engine.bundle import Bundle, base_hash, load_bundle, verify, write_manifest
from engine.errors import BadBundle
from tests.support.bundles import ORACLE, adapter_bundle, tuned_bundle

TENSORS = "adapter/adapter_model.safetensors"


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    """A bundle with every part inside its folder, free to be damaged."""
    folder = tmp_path / "bundle"
    adapter_bundle(folder)
    shutil.copytree(ORACLE / "base", folder / "base")
    (folder / "head").mkdir()
    for name in ("joint_head.safetensors", "joint_head_config.json"):
        shutil.copy(ORACLE / "clef" / name, folder / "head")
    return make(folder)


def make(folder: Path, **changes: Any) -> Bundle:
    """Write the manifest of a folder anew."""
    parts: dict[str, Any] = {
        "base": folder / "base",
        "head": folder / "head",
        "adapter": folder / "adapter",
    }
    return write_manifest(folder, name="test", **parts | changes)


def edit_json(path: Path, change: Callable[[Any], Any]) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def test_a_bundle_says_where_its_parts_are(tmp_path: Path) -> None:
    made = adapter_bundle(tmp_path / "a")
    found = load_bundle(tmp_path / "a")
    assert found == made
    verify(found)
    assert found.base == ORACLE / "base"
    assert found.adapter == (tmp_path / "a" / "adapter")
    assert found.head == ORACLE / "clef" / "joint_head.safetensors"
    assert found.tokenizer == ORACLE / "base"
    assert found.adapter_rank == 8
    assert found.head_config["hidden_size"] == 128
    assert found.window == 32768
    assert found.arbitrary
    assert set(found.part_hashes) == {"base", "adapter", "head", "tokenizer"}


def test_tuned_weights_are_a_bundle_without_adapter(tmp_path: Path) -> None:
    bundle = tuned_bundle(tmp_path / "t")
    assert bundle.adapter is None
    assert bundle.adapter_rank is None
    assert set(bundle.part_hashes) == {"base", "head", "tokenizer"}


def test_the_hash_is_of_the_content_alone(bundle: Bundle, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(bundle.path, elsewhere)
    assert load_bundle(elsewhere).hash == bundle.hash == adapter_bundle(tmp_path / "a").hash
    assert len(bundle.hash) == 12
    tokenizer = json.loads((elsewhere / "base" / "tokenizer.json").read_text())
    (elsewhere / "base" / "tokenizer.json").write_text(json.dumps(tokenizer))
    assert make(elsewhere).hash != bundle.hash


def shorten(folder: Path) -> None:
    path = folder / "base" / "model-00002-of-00003.safetensors"
    path.write_bytes(path.read_bytes()[:-1])


def flip(folder: Path) -> None:
    path = folder / "head" / "joint_head.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def remove(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def manifest(change: Callable[[Any], Any]) -> Callable[[Path], None]:
    return lambda folder: edit_json(folder / "bundle.json", change)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (remove("bundle.json"), "is no model bundle"),
        (lambda folder: (folder / "bundle.json").write_text("{"), r"bundle\.json: .*truncated"),
        (manifest(lambda m: m.pop("head")), r"bundle\.json: .*missing required field `head`"),
        (manifest(lambda m: m.update(extra=1)), "unknown field `extra`"),
        (manifest(lambda m: m.update(format=2)), "format 2 for vLLM"),
        (manifest(lambda m: m.update(vllm="0.27.0")), r"for vLLM 0\.27\.0, this version"),
        (manifest(lambda m: m["summary"].update(window=5)), "summary is of another base"),
        (manifest(lambda m: m["head_config"].update(layers=5)), "not the manifest's"),
        (manifest(lambda m: m.update(adapter_rank=None)), "belong together"),
        (manifest(lambda m: m.update(adapter_rank=4)), "rank is not 4"),
        (remove("base/config.json"), r"config\.json: No such file"),
        (remove("base/model-00003-of-00003.safetensors"), "00003-of-00003.*No such file"),
        (remove("base/tokenizer.json"), r"tokenizer\.json: No such file"),
        (remove("head/joint_head.safetensors"), "joint_head.*No such file"),
        (remove(TENSORS), "adapter_model.*No such file"),
        (shorten, "2190735 bytes, the manifest says 2190736"),
        (flip, r"joint_head\.safetensors: its content is not what the manifest says"),
    ],
)
def test_damage_is_refused_by_name(
    damage: Callable[[Path], None], message: str, bundle: Bundle
) -> None:
    damage(bundle.path)
    with pytest.raises(BadBundle, match=message) as caught:
        load_bundle(bundle.path)
    assert "\n" not in str(caught.value)


def test_large_files_are_hashed_on_demand(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    flip(bundle.path)
    monkeypatch.setattr("engine.bundle._HASHED_AT_LOAD", 100_000)
    loaded = load_bundle(bundle.path)
    with pytest.raises(BadBundle, match="its content is not what the manifest says"):
        verify(loaded)


def test_an_adapter_for_another_base_is_refused(bundle: Bundle) -> None:
    shard = bundle.base / "model-00002-of-00003.safetensors"
    tensors = load_file(shard)
    tensors["lm_head.weight"] += 1
    save_file(tensors, shard, metadata={"format": "pt"})
    with pytest.raises(BadBundle, match="made for another base"):
        make(bundle.path)


def test_an_adapter_that_vllm_would_not_apply_is_refused(bundle: Bundle) -> None:
    tensors = load_file(bundle.path / TENSORS)
    silent = {name.replace(".language_model.", "."): tensor for name, tensor in tensors.items()}
    metadata = {"base": base_hash(bundle.base)}
    save_file(silent, bundle.path / TENSORS, metadata=metadata)
    with pytest.raises(BadBundle, match=r"vLLM would not apply base_model\.model\.model\.layers"):
        make(bundle.path)


def test_an_adapter_with_other_shapes_is_refused(bundle: Bundle) -> None:
    tensors = load_file(bundle.path / TENSORS)
    metadata = {"base": base_hash(bundle.base)}
    name = next(iter(tensors))
    save_file(tensors | {name: tensors[name][:, :-1].clone()}, bundle.path / TENSORS, metadata)
    with pytest.raises(BadBundle, match="should have the shape"):
        make(bundle.path)
    del tensors[name]
    save_file(tensors, bundle.path / TENSORS, metadata)
    with pytest.raises(BadBundle, match="should have the shape"):
        make(bundle.path)
    save_file({}, bundle.path / TENSORS, metadata)
    with pytest.raises(BadBundle, match="the adapter is empty"):
        make(bundle.path)


@pytest.mark.parametrize("matrix", ["in_proj_qkv", "in_proj_z"])
def test_an_adapter_without_a_piece_that_vllm_wants_is_refused(bundle: Bundle, matrix: str) -> None:
    whole = load_file(bundle.path / TENSORS)
    left = {
        name: tensor for name, tensor in whole.items() if f"5.linear_attn.{matrix}." not in name
    }
    assert len(whole) - len(left) == 2
    save_file(left, bundle.path / TENSORS, {"base": base_hash(bundle.base)})
    absent = rf"absent: model\.language_model\.layers\.5\.linear_attn\.{matrix};"
    with pytest.raises(BadBundle, match=absent):
        make(bundle.path)
    others = {name: tensor for name, tensor in whole.items() if ".in_proj_b." not in name}
    save_file(others, bundle.path / TENSORS, {"base": base_hash(bundle.base)})
    make(bundle.path)


def test_a_head_for_another_base_is_refused(bundle: Bundle) -> None:
    edit_json(bundle.head.with_name("joint_head_config.json"), lambda c: c.update(hidden_size=64))
    with pytest.raises(BadBundle, match="the head is for hidden size 64, the base has 128"):
        make(bundle.path)


def test_a_tokenizer_beyond_the_base_s_vocabulary_is_refused(bundle: Bundle) -> None:
    path = bundle.tokenizer / "tokenizer.json"
    edit_json(path, lambda content: content["added_tokens"][-1].update(id=1024))
    with pytest.raises(BadBundle, match="has 1025 tokens, the base knows 1024"):
        make(bundle.path)


def test_adapters_are_written_at_a_common_rank(tmp_path: Path) -> None:
    module = "model.language_model.layers.5.linear_attn.in_proj_a"
    a, b = torch.ones(2, 6), torch.ones(4, 2)
    write_adapter(tmp_path, {module: (a, b)}, rank=8, base="0" * 64)
    tensors = load_file(tmp_path / "adapter_model.safetensors")
    wide_a = tensors[f"base_model.model.{module}.lora_A.weight"]
    wide_b = tensors[f"base_model.model.{module}.lora_B.weight"]
    assert (wide_a.shape, wide_b.shape) == ((8, 6), (4, 8))
    torch.testing.assert_close(wide_b @ wide_a, b @ a)
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    assert config["r"] == config["lora_alpha"] == 8
    assert config["target_modules"] == ["in_proj_a"]


@pytest.mark.parametrize(
    ("module", "a", "b"),
    [
        ("model.layers.5.mlp.up_proj", (2, 6), (4, 2)),
        ("model.language_model.layers.5.linear_attn.conv1d", (2, 6), (4, 2)),
        ("model.language_model.layers.5.mlp.up_proj", (2, 6), (4, 3)),
        ("model.language_model.layers.5.mlp.up_proj", (9, 6), (4, 9)),
    ],
)
def test_factors_that_are_no_adapter_are_refused(
    module: str, a: tuple[int, int], b: tuple[int, int], tmp_path: Path
) -> None:
    with pytest.raises(BadBundle, match="no adapter of rank 8"):
        write_adapter(tmp_path, {module: (torch.zeros(a), torch.zeros(b))}, rank=8, base="0" * 64)
    assert not (tmp_path / "adapter_config.json").exists()
