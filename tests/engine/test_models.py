from __future__ import annotations

from pathlib import Path

import pytest

from engine.errors import BadBundle, BadRequest
from engine.models import DEFAULT_WINDOW, open_model
from tests.support.bundles import adapter_bundle
from tests.support.queues import request


def test_a_mock_is_known_by_its_spec() -> None:
    one, same, other = (open_model(f"mock:seed={seed}") for seed in (1, 1, 2))
    assert one.hash == same.hash != other.hash
    assert len(one.hash) == 12
    assert int(one.hash, 16) >= 0  # hex digits, so that it can be part of a subject
    assert one.arbitrary
    assert one.bundle is None
    assert one.window == DEFAULT_WINDOW


@pytest.mark.parametrize(
    ("spec", "wanted", "got"),
    [
        ("mock", None, DEFAULT_WINDOW),
        ("mock", 100, 100),
        ("mock:window=50", None, 50),
        ("mock:window=50", 100, 50),
    ],
)
def test_the_window_is_the_smaller_of_both(spec: str, wanted: int | None, got: int) -> None:
    assert open_model(spec, window=wanted).window == got


def test_a_bundle_is_known_by_its_content_and_measures_without_being_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter_bundle(tmp_path / "bundle")
    monkeypatch.chdir(tmp_path)
    model = open_model("bundle", window=64)
    assert model.bundle is not None
    assert model.hash == model.bundle.hash
    assert Path(model.spec) == tmp_path / "bundle"  # a worker started elsewhere finds it too
    assert model.window == 64
    longer = request(state="a state " * 1000).ask
    assert model.measure(longer) > model.measure(request().ask) > 0


def test_what_is_neither_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadBundle, match="nothing"):
        open_model(str(tmp_path / "nothing"))
    with pytest.raises(BadRequest, match="typo"):
        open_model("mock:typo=1")
