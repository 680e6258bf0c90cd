"""Bundles on another base of the same model than the one that their adapter was extracted from."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.bundle import Bundle, load_bundle, verify
from engine.errors import BadBundle, NotWritten
from engine.extract.job import Options, extract
from engine.extract.verify import verify_adapter
from engine.plan import sizes_of
from engine.rebase import rebase
from tests.support.bundles import ORACLE, SHORT, oracle_asks, tuned_bundle
from tests.support.quantized import Method, quantized_base


def quiet(*_: Any) -> None:
    pass


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    out = tmp_path_factory.mktemp("extracted") / "b"
    return extract(ORACLE / "base", ORACLE / "clef", out, Options(), quiet)


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """A base of the same model with other values, as another way of rounding gives them."""
    folder = Path(shutil.copytree(ORACLE / "base", tmp_path / "other"))
    for path in folder.glob("*.safetensors"):
        tensors = load_file(path)
        for name, tensor in tensors.items():
            if name.endswith("_proj.weight"):
                generator = torch.Generator().manual_seed(len(name))
                tensors[name] = tensor * (1 + 0.02 * torch.randn(tensor.shape, generator=generator))
                tensors[name] = tensors[name].bfloat16()
        save_file(tensors, path, metadata={"format": "pt"})
    return folder


def test_a_bundle_names_both_bases(bundle: Bundle, other: Path, tmp_path: Path) -> None:
    stages: set[str] = set()
    found = rebase(bundle, other, tmp_path / "r", lambda stage, *_: stages.add(stage))
    assert stages == {"hashing the base (files)"}
    assert found == load_bundle(tmp_path / "r")
    verify(found)
    assert found.base == other
    assert found.hash != bundle.hash
    manifest = found.manifest
    assert manifest.original is not None
    assert manifest.original.hash == bundle.manifest.base.hash
    assert manifest.extraction == bundle.manifest.extraction
    assert (found.adapter_rank, manifest.quantization) == (8, None)
    for name in ("adapter", "head", "tokenizer"):
        assert found.part_hashes[name] == bundle.part_hashes[name]
    # else vLLM looks for it for seconds, at every start
    config = bundle.tokenizer / "config.json"
    assert (found.tokenizer / "config.json").read_bytes() == config.read_bytes()
    # on a further base it still knows the one that it was made for
    again = rebase(found, ORACLE / "base", tmp_path / "again", quiet)
    assert again.manifest.original == manifest.original


def test_what_another_base_changes_is_measured(bundle: Bundle, other: Path, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    found = verify_adapter(rebase(bundle, other, tmp_path / "r", quiet), oracle_asks(SHORT), quiet)
    mine = verify_adapter(bundle, oracle_asks(SHORT), quiet)
    assert (found.other_base, mine.other_base) == (True, False)
    assert found.matrices == mine.matrices  # on the base that they were made for
    assert found.answers is not None
    assert mine.answers is not None
    assert found.answers.probability > 2 * mine.answers.probability


def test_a_base_that_is_gone_is_not_measured(bundle: Bundle, other: Path, tmp_path: Path) -> None:
    moved = shutil.copytree(ORACLE / "base", tmp_path / "moved")
    first = rebase(extract_from(moved, tmp_path / "b"), other, tmp_path / "r", quiet)
    shutil.rmtree(moved)
    assert load_bundle(tmp_path / "r") == first
    assert verify_adapter(first, [], quiet).matrices == {}


def extract_from(base: Path, out: Path) -> Bundle:
    return extract(base, ORACLE / "clef", out, Options(), quiet)


@pytest.mark.vllm
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "method",
    [
        "compressed-tensors",
        pytest.param("gptq", marks=pytest.mark.long),
        pytest.param("awq", marks=pytest.mark.long),
    ],
)
def test_four_bits_answer_through_vllm(method: Method, bundle: Bundle, tmp_path: Path) -> None:
    pytest.importorskip("vllm")
    base = quantized_base(tmp_path / "q", method)
    smaller = rebase(bundle, base, tmp_path / "r", quiet)
    assert sizes_of(smaller).weights < 0.4 * sizes_of(bundle).weights
    assert sizes_of(smaller).adapter == sizes_of(bundle).adapter
    found = verify_adapter(smaller, oracle_asks(SHORT), quiet)
    assert (found.engine, found.quantization) == ("vllm", f"{method}, 4 bits")
    assert found.answers is not None
    assert found.answers.records == 1 + len(SHORT)
    assert found.answers.hidden is None
    # 4 bits change answers, though not as much as no adapter at all
    assert 0.001 < found.answers.probability < 0.3
    assert found.answers.agreed >= found.answers.questions / 2


@pytest.mark.vllm
@pytest.mark.long
def test_vllm_applies_every_tensor_of_an_extracted_adapter(bundle: Bundle) -> None:
    pytest.importorskip("vllm")
    found = verify_adapter(bundle, oracle_asks(), quiet, engine="vllm")
    assert found.answers is not None
    assert found.answers.logit < 0.02
    assert found.answers.probability < 0.002
    assert found.answers.agreed == found.answers.questions


def test_other_models_and_places_are_refused(bundle: Bundle, other: Path, tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "mine").write_text("precious")
    with pytest.raises(NotWritten, match="is not empty"):
        rebase(bundle, other, tmp_path / "taken", quiet)
    with pytest.raises(BadBundle, match="it has no adapter"):
        rebase(tuned_bundle(tmp_path / "t"), other, tmp_path / "r", quiet)
    with pytest.raises(BadBundle, match="No such file"):
        rebase(bundle, tmp_path / "gone", tmp_path / "r", quiet)
    config = json.loads((other / "config.json").read_text())
    config["text_config"]["num_hidden_layers"] = 9
    (other / "config.json").write_text(json.dumps(config))
    with pytest.raises(BadBundle, match="num_hidden_layers is 9, the bundle's base has 8"):
        rebase(bundle, other, tmp_path / "r", quiet)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "t", "taken"]


def test_a_base_with_other_shapes_leaves_nothing(
    bundle: Bundle, other: Path, tmp_path: Path
) -> None:
    (path,) = [path for path in other.glob("*.safetensors") if "00002" in path.name]
    tensors = load_file(path)
    name = "model.language_model.layers.5.mlp.up_proj.weight"
    tensors[name] = tensors[name][:-1].clone()
    save_file(tensors, path)
    with pytest.raises(BadBundle, match="should have the shape"):
        rebase(bundle, other, tmp_path / "r", quiet)
    assert [path.name for path in tmp_path.iterdir()] == ["other"]
