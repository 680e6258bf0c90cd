"""What cannot be served is refused before anything is loaded; these take no engine."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from engine.bundle import Bundle
from engine.errors import BadSetting, DoesNotFit
from engine.settings import Size, WorkerSettings
from tests.support.bundles import ORACLE, adapter_bundle, tuned_bundle

pytestmark = pytest.mark.vllm


@pytest.fixture(scope="module")
def module() -> Any:
    pytest.importorskip("vllm")
    return importlib.import_module("engine.llm.refuse")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return adapter_bundle(tmp_path_factory.mktemp("bundle"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"device": "gpu"}, r"device gpu: .* is the CPU build; install ostinato\[gpu\]"),
        ({"head_device": "gpu"}, "head_device gpu: the model runs on the CPU here"),
        ({"kv_cache_dtype": "int8"}, "kv_cache_dtype int8: .*knows auto and fp8"),
        ({"speculative": "ngram"}, "speculative ngram: .*reuse prefixes at once"),
        ({"speculative": "mtp"}, "speculative mtp: .*reuse prefixes at once"),
        ({"speculative": "dflash2", "draft": Path("x")}, "speculative dflash2: .*V2 model runner"),
        ({"draft": ORACLE / "base"}, "draft .*: only `speculative` dflash2"),
        ({"window": 100, "max_record_tokens": 200}, "max_record_tokens 200: the window is 100"),
    ],
)
def test_what_a_cpu_cannot_do_is_named_with_the_reason(
    module: Any, bundle: Bundle, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(BadSetting, match=message):
        module.refuse(bundle, WorkerSettings(**changes), on_cpu=True)


def test_what_a_gpu_cannot_do(
    module: Any, bundle: Bundle, tmp_path: Path, monkeypatch: Any
) -> None:
    def memory(_: Any = None) -> int:
        return 2 << 30

    monkeypatch.setattr(module.current_platform, "get_device_total_memory", memory)
    refuse = module.refuse
    with pytest.raises(BadSetting, match=r"device cpu: .* is the GPU build"):
        refuse(bundle, WorkerSettings(device="cpu"), on_cpu=False)
    with pytest.raises(BadSetting, match=r"dflash2: it needs a draft model"):
        refuse(bundle, WorkerSettings(speculative="dflash2"), on_cpu=False)
    refuse(bundle, WorkerSettings(speculative="mtp"), on_cpu=False)
    with pytest.raises(BadSetting, match=r"mtp: the base has no predictor"):
        refuse(tuned_bundle(tmp_path), WorkerSettings(speculative="mtp"), on_cpu=False)
    refuse(bundle, WorkerSettings(kv_cache_dtype="int8", head_device="gpu"), on_cpu=False)
    with pytest.raises(BadSetting, match=r"head_device cpu: .* beside the model alone"):
        refuse(bundle, WorkerSettings(head_device="cpu"), on_cpu=False)
    monkeypatch.setattr(module.current_platform, "get_device_total_memory", lambda: 1 << 29)
    with pytest.raises(DoesNotFit, match=r"GiB are missing on 0\.5 GiB"):
        refuse(bundle, WorkerSettings(), on_cpu=False)


def test_a_cache_that_cannot_hold_the_window(module: Any, bundle: Bundle) -> None:
    small = WorkerSettings(dtype="float32", kv_cache_memory=Size(32 << 20))
    with pytest.raises(
        DoesNotFit, match=r"holds a sequence of [\d,]+ tokens, the window is 32,769"
    ):
        module.refuse(bundle, small, on_cpu=True)
    short = WorkerSettings(dtype="float32", kv_cache_memory=Size(32 << 20), window=2048)
    module.refuse(bundle, short, on_cpu=True)
