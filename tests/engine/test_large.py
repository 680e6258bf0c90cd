"""Files of the 27B's size, whose content nobody reads, through the code that plans with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.adapter import TENSORS
from engine.bundle import load_bundle
from engine.errors import DoesNotFit
from engine.extract import compare
from engine.extract.weights import open_weights
from engine.plan import plan, sizes_of
from engine.settings import GIB, WorkerSettings
from tests.support.large import changed_27b, parameters, sparse_bundle, sparse_pair

CARD = WorkerSettings(device="gpu")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return sparse_pair(tmp_path_factory.mktemp("27b"))


def test_the_files_are_large_and_take_no_room(pair: tuple[Path, Path]) -> None:
    for folder in pair:
        sizes = [path.stat() for path in folder.iterdir()]
        assert sum(status.st_size for status in sizes) > 50e9
        assert sum(status.st_blocks * 512 for status in sizes) < 50e6


def test_extraction_finds_what_may_change(pair: tuple[Path, Path]) -> None:
    base, tuned = map(open_weights, pair)
    assert compare.structural(base, tuned) == []  # the predictor is expected
    assert len(compare.common(base, tuned)) == len(tuned.shapes)
    adapted = [name for name in tuned.shapes if compare.unadaptable(name, 0.0) is None]
    assert len(adapted) == 48 * 8 + 16 * 7
    assert len(changed_27b()) == 186
    assert set(changed_27b()) <= set(adapted)


def test_the_adapter_has_the_release_s_parameters(pair: tuple[Path, Path], tmp_path: Path) -> None:
    bundle = sparse_bundle(tmp_path / "b", *pair, rank=256)
    assert bundle.adapter is not None
    assert parameters(bundle.adapter / TENSORS) == 700_366_848
    assert load_bundle(bundle.path) == bundle
    sizes = sizes_of(bundle, CARD)
    assert (sizes.weights + sizes.adapter) / GIB == pytest.approx(54.2, rel=0.05)
    assert sizes.block == 784
    assert sizes.head == 2 * 256_125_024
    assert plan(sizes, 141 * 10**9, CARD).context == 262144
    with pytest.raises(DoesNotFit, match="GiB are missing on 32"):
        plan(sizes, 32 * GIB, CARD)
