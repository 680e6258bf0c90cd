"""Bundles against the tuned weights, and the plain model against the release's own states."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.bundle import Bundle, write_manifest
from engine.errors import BadBundle, BadWeights
from engine.extract import verify
from engine.extract.job import Options, extract
from engine.extract.reference import hidden_states
from engine.extract.verify import verify_adapter
from engine.extract.weights import open_weights
from tests.support.bundles import ORACLE, SHORT, adapter_bundle, oracle_answers, oracle_asks

pytest.importorskip("transformers")

ANSWERS = oracle_answers()


def quiet(*_: Any) -> None:
    pass


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    out = tmp_path_factory.mktemp("extracted") / "b"
    return extract(ORACLE / "base", ORACLE / "clef", out, Options(), quiet)


@pytest.mark.parametrize(("folder", "name"), [("base", "base"), ("clef", "clef")])
def test_the_plain_model_gives_the_release_s_states(folder: str, name: str) -> None:
    expected = load_file(ORACLE / "activations.safetensors")
    weights = open_weights(ORACLE / folder)
    (states,) = hidden_states(
        weights, [ANSWERS["three_types"]["input_ids"]], dtype=torch.float32, device="cpu"
    )
    torch.testing.assert_close(states, expected[f"three_types.{name}.hidden"], atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    "names", [SHORT, pytest.param(None, marks=pytest.mark.long)], ids=["short", "all"]
)
def test_an_extracted_bundle_answers_within_the_band(
    names: list[str] | None, bundle: Bundle
) -> None:
    found = verify_adapter(bundle, oracle_asks(names), quiet)
    assert bundle.manifest.extraction is not None
    for name, error in found.matrices.items():
        assert error.change == pytest.approx(bundle.manifest.extraction.matrices[name].change)
    answers = found.answers
    assert answers is not None
    assert answers.records == len(oracle_asks(names)) + 1
    assert 0 < answers.logit < 0.02
    assert 0 < answers.probability < 0.002
    assert 0 < answers.hidden < 0.01
    assert answers.agreed == answers.questions


def test_a_spoilt_adapter_shows(bundle: Bundle, tmp_path: Path) -> None:
    assert bundle.adapter is not None
    tensors = load_file(bundle.adapter / "adapter_model.safetensors")
    (tmp_path / "adapter").mkdir()
    for path in bundle.adapter.iterdir():
        (tmp_path / "adapter" / path.name).write_bytes(path.read_bytes())
    name = "base_model.model.model.language_model.layers.5.mlp.up_proj.lora_B.weight"
    tensors[name] *= 0.5
    save_file(
        tensors,
        tmp_path / "adapter" / "adapter_model.safetensors",
        metadata={"base": bundle.manifest.base.hash},
    )
    spoilt = write_manifest(
        tmp_path,
        name="spoilt",
        base=bundle.base,
        head=bundle.head.parent,
        adapter=tmp_path / "adapter",
        extraction=bundle.manifest.extraction,
    )
    found = verify_adapter(spoilt, [], quiet)
    assert found.matrices["model.language_model.layers.5.mlp.up_proj.weight"].change > 0.4
    assert found.answers is not None
    assert found.answers.hidden > 0.01


def test_a_model_that_does_not_fit_is_measured_without_answers(
    bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verify, "_free", lambda device: 1 << 20)
    found = verify_adapter(bundle, [], quiet)
    assert found.answers is None
    assert found.skipped.startswith("the model needs 0.0 GiB")
    assert len(found.matrices) == 23


def test_other_bundles_and_weights_are_refused(bundle: Bundle, tmp_path: Path) -> None:
    with pytest.raises(BadBundle, match="not made by `ostinato extract`"):
        verify_adapter(adapter_bundle(tmp_path / "a"), [], quiet)
    with pytest.raises(BadWeights, match="no such folder"):
        verify_adapter(bundle, [], quiet, tuned=tmp_path / "gone")
    assert bundle.manifest.extraction is not None
    fewer = msgspec.structs.replace(bundle.manifest.extraction, matrices={})
    manifest = msgspec.structs.replace(bundle.manifest, extraction=fewer)
    with pytest.raises(BadBundle, match="name other matrices"):
        verify_adapter(msgspec.structs.replace(bundle, manifest=manifest), [], quiet)
