"""The one question that every worker asks itself before it serves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from engine.contract import Ask, Field
from engine.errors import BadBundle
from engine.settings import WorkerSettings

FIXED: Final = Ask(
    state="Three doors: red, green, blue. The key lies before the green one.",
    fields=(
        Field(
            id="door",
            type="choice",
            instruction="Which door opens?",
            option_ids=("blue", "green", "red"),
            option_texts=(
                '{"option_id":"blue"}',
                '{"option_id":"green"}',
                '{"option_id":"red"}',
            ),
        ),
    ),
)

_EXACT: Final = 1e-3
_ROUNDED: Final = 0.35  # twice what the small checkpoint with known answers shows in bf16


def check_answer(
    found: Sequence[float], recorded: Sequence[float], settings: WorkerSettings
) -> None:
    """Compare the logits of `FIXED` with those that the bundle records, if it does.

    Raises:
        BadBundle: They differ by more than the number formats explain.
    """
    if not recorded:
        return
    exact = (settings.dtype, settings.kv_cache_dtype, settings.state_dtype) == (
        "float32",
        "auto",
        "fp32",
    )
    band = _EXACT if exact and settings.feature_format == "fp32" else _ROUNDED
    apart = max(abs(one - other) for one, other in zip(found, recorded, strict=True))
    if not apart <= band:
        raise BadBundle(
            f"the fixed question's answer is {_show(found)}, the bundle records {_show(recorded)}: "
            f"{apart:.2g} apart, {band:g} is what number formats explain; weights or vLLM differ "
            "from those that the bundle was made with: `ostinato doctor --model BUNDLE` hashes all "
            "files, else make it again"
        )


def _show(logits: Sequence[float]) -> str:
    return " ".join(f"{logit:.3f}" for logit in logits)
