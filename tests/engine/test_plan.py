"""Plans at the 27B's shape, against what vLLM printed for it on an H200."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec
import pytest

from engine.bundle import Bundle
from engine.errors import BadBundle, DoesNotFit
from engine.plan import Sizes, draft_size, model_sizes, plan, sizes_of
from engine.quantized import Tensors
from engine.settings import GIB, PROFILES, WorkerSettings, profile_values
from engine.tensors import read_header
from tests.support.bundles import ORACLE, adapter_bundle
from tests.support.large import CONFIG, FULL, LINEAR, MLP, shapes_27b

CARD = WorkerSettings(device="gpu")
FEW = WorkerSettings(device="gpu", max_seqs=8)


def sizes_27b(settings: WorkerSettings = CARD, **options: Any) -> Sizes:
    shapes = shapes_27b()
    return model_sizes(
        CONFIG,
        Tensors(shapes, {name: 2 * math.prod(shape) for name, shape in shapes.items()}, set()),
        modules=set(FULL) | set(LINEAR) | set(MLP),
        rank=256,
        head=256_125_024,
        width=1024,
        settings=settings,
        **options,
    )


def test_weights_and_cache_are_what_vllm_printed() -> None:
    sizes = sizes_27b()
    assert (sizes.weights + sizes.adapter) / GIB == pytest.approx(54.2, rel=0.05)
    assert sizes.block == 784
    assert sizes.kv_token == 64 * 1024
    # 16 layers side by side, 4,096 bytes a token, and 1.6 MB of head features
    assert sizes.pool == 16
    assert sizes.block_bytes == 784 * (16 * 4096 + 2048)
    assert sizes_27b(settings(kv_cache_dtype="fp8")).kv_token == 32 * 1024
    assert sizes_27b(settings(kv_cache_dtype="int8")).block == 1552  # as vLLM has it
    assert sizes_27b(settings(state_dtype="bf16")).block == 400  # half, and the convolution's


def settings(**changes: Any) -> WorkerSettings:
    return msgspec.structs.replace(CARD, **changes)


def test_a_plan_is_all_of_the_card() -> None:
    for memory, weights in ((24 * GIB, "w4a16"), (32 * GIB, "w4a16"), (141 * 10**9, "stored")):
        found = plan(sizes_27b(FEW, weights=weights), memory, FEW)
        assert 0 <= memory - sum(item.bytes for item in found.items) < 60 * 10**6
        assert found.context > 0
        assert found.matches > found.chats >= 0


def test_more_memory_and_smaller_numbers_give_more_context() -> None:
    tight = plan(sizes_27b(FEW, weights="w4a16"), 24 * GIB, FEW)
    roomy = plan(sizes_27b(FEW, weights="w4a16"), 32 * GIB, FEW)
    eight = settings(kv_cache_dtype="fp8", max_seqs=8)
    small = plan(sizes_27b(eight, weights="w4a16"), 24 * GIB, eight)
    assert tight.context < small.context
    assert tight.context < roomy.context
    assert plan(sizes_27b(), 141 * 10**9, CARD).context == 262144


def test_a_profile_says_window_seats_and_cache_and_fits_a_large_card() -> None:
    found = {}
    for name in PROFILES:
        profile = settings(**profile_values(name))
        found[name] = plan(
            sizes_27b(profile, weights="w4a16"), 40 * GIB, profile, window=profile.window
        )
        assert found[name].window == profile.window
        assert 1 <= found[name].seats <= profile.max_seqs
    assert found["fast"].window < found["long"].window < found["huge"].window


def test_a_head_on_the_cpu_leaves_its_room_to_the_cache() -> None:
    apart = settings(head_device="cpu")
    sizes, beside = sizes_27b(apart), sizes_27b()
    assert (sizes.head, sizes.feature) == (0, 0)
    assert plan(sizes, 141 * 10**9, apart).blocks > plan(beside, 141 * 10**9, CARD).blocks


def test_a_cache_that_is_set_is_all_that_it_takes() -> None:
    set_ = settings(kv_cache_memory=8 * GIB)
    found = plan(sizes_27b(set_), 141 * 10**9, set_)
    items = {item.name: item.bytes for item in found.items}
    assert items["KV cache and linear states"] + items["head features"] == 8 * GIB
    assert items["free"] > 50 * GIB
    assert sum(items.values()) == 141 * 10**9
    with pytest.raises(
        DoesNotFit, match=r"holds a sequence of [\d,]+ tokens, the window is 262,144"
    ):
        plan(sizes_27b(set_), 141 * 10**9, set_, window=262144)


def test_what_does_not_fit_is_refused_with_what_to_change() -> None:
    with pytest.raises(DoesNotFit, match=r"GiB are missing on 32\.0 GiB.*--weights fp8 or w4a16"):
        plan(sizes_27b(), 32 * GIB, CARD)
    with pytest.raises(DoesNotFit):
        plan(sizes_27b(weights="w4a16"), 24 * GIB, CARD, draft=4 * GIB)
    with pytest.raises(DoesNotFit, match=r"has 15 blocks, .* 16 sequences .*--max-seqs 15 at most"):
        plan(sizes_27b(weights="w4a16"), 24 * GIB, CARD)
    alone, smallest = settings(max_seqs=1), 20 * GIB
    while True:  # the edge is where one sequence of one block fits
        try:
            found = plan(sizes_27b(alone, weights="w4a16"), smallest, alone)
            break
        except DoesNotFit:
            smallest += GIB // 16
    assert found.context == 784 or found.context == 2 * 784


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return adapter_bundle(tmp_path_factory.mktemp("bundle"))


def test_sizes_are_read_from_a_bundle(bundle: Bundle) -> None:
    sizes = sizes_of(bundle, CARD)
    shards = [read_header(ORACLE / "base" / f"model-0000{i}-of-00003.safetensors") for i in (1, 2)]
    text = sum(
        size
        for shard in shards
        for name, size in shard.sizes.items()
        if not name.startswith("model.visual.")
    )
    assert sizes.weights == text
    assert (sizes.full, sizes.linear, sizes.longest) == (2, 6, 32768)
    assert sizes.token == 2 * 2 * 64 * 2
    assert sizes.state == 4 * 128 * 128 * 4 + 1024 * 3 * 2
    # every layer's matrices, not only the adapted ones
    assert (
        sizes.adapter > 2 * (bundle.path / "adapter/adapter_model.safetensors").stat().st_size / 4
    )
    assert plan(sizes, 2 * GIB, CARD).context == 32768
    assert sizes_of(bundle, CARD, weights="w4a16").weights < text


def test_a_machine_without_a_card_has_blocks_of_its_own(bundle: Bundle) -> None:
    wide = WorkerSettings(device="cpu", dtype="float32")
    sizes = sizes_of(bundle, wide)
    assert sizes.block == 384  # as vLLM has it
    assert sizes.weights == 2 * sizes_of(bundle, CARD).weights
    assert plan(sizes, GIB, wide, window=32769).seats >= 1
    names = {item.name for item in plan(sizes, GIB, wide).items}
    assert names.isdisjoint({"graphs and CUDA", "not vLLM's"})
    with pytest.raises(DoesNotFit, match=r"GiB are missing on 0\.2 GiB"):
        plan(sizes, GIB // 4, wide, window=32769)


def test_a_draft_model_takes_its_weights(tmp_path: Path) -> None:
    assert draft_size(ORACLE / "base") == 6_807_776
    with pytest.raises(BadBundle, match=r"no \*\.safetensors in it"):
        draft_size(tmp_path)
