"""Answers as a worker gives them, through vLLM, to compare two sets of weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import anyio
import msgspec
import torch
from torch import Tensor

from engine.bundle import Bundle, base_files
from engine.contract import Ask, DecisionRequest
from engine.llm.backend import VllmBackend
from engine.manifest import FileEntry, Part
from engine.settings import Dtype

_DEADLINE_S = 600.0


def served_logits(
    bundle: Bundle, asks: Sequence[Ask], on_answer: Callable[[int], None], *, dtype: Dtype
) -> list[Tensor]:
    """Give the logits of every question of the asks, in their order.

    An engine is started for them and ended again.

    Args:
        bundle: What answers.
        asks: In joint form.
        on_answer: Told how many asks are answered.
        dtype: Number format of the model.

    Raises:
        EngineMissing: vLLM is absent or not the tested one.
        EngineFailed: vLLM did not start, or gave no usable answer.
        BadRequest: An ask makes no record.
    """

    async def answer() -> list[Tensor]:
        backend = await VllmBackend.start(bundle, dtype=dtype, window=bundle.window)
        found: list[Tensor] = []
        try:
            for index, ask in enumerate(asks):
                request = DecisionRequest(
                    id=f"verify-{index}",
                    attempt=1,
                    source="verify",
                    affinity="verify",
                    remaining_s=_DEADLINE_S,
                    ask=ask,
                    explain=True,
                )
                reply = await backend.decide(request)
                found += [torch.tensor(each.logits) for each in reply.answers]
                on_answer(index + 1)
        finally:
            await backend.close()
        return found

    return anyio.run(answer)


def as_bundle(bundle: Bundle, tuned: Path) -> Bundle:
    """Give the bundle whose base holds the tuned weights, with the head of this one, unhashed."""
    files = {name: FileEntry((tuned / name).stat().st_size, "") for name in base_files(tuned)}
    manifest = msgspec.structs.replace(
        bundle.manifest,
        base=Part(str(tuned.resolve()), files),
        adapter=None,
        adapter_rank=None,
        extraction=None,
        original=None,
        quantization=None,
    )
    return msgspec.structs.replace(bundle, manifest=manifest)
