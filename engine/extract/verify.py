"""Whether base and adapter of a bundle are the tuned model."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import torch
from torch import Tensor

from engine.bundle import Bundle
from engine.contract import Ask, Field
from engine.errors import BadBundle, BadWeights
from engine.extract.factors import DTYPES, measure
from engine.extract.reference import footprint, hidden_states, read_factors
from engine.extract.weights import Weights, open_weights
from engine.head import JointHead
from engine.manifest import MatrixError
from engine.tokens import Encoder, Record

_FIXED = Ask(
    state="Three doors: red, green, blue. The key lies before the green one.",
    fields=(
        Field(
            id="door",
            type="choice",
            instruction="Which door opens?",
            option_ids=("blue", "green", "red"),
            option_texts=tuple(f'{{"option_id":"{name}"}}' for name in ("blue", "green", "red")),
        ),
    ),
)


class Answers(msgspec.Struct, frozen=True, kw_only=True):
    """How answers through base and adapter differ from the tuned model's.

    Attributes:
        records: How many were compared; the first is a fixed one.
        hidden: ‖H − H'‖ / ‖H'‖ of the fixed record's states.
        logit: The largest difference of a logit.
        probability: The largest difference of a probability.
        agreed: Questions whose most probable option is the same.
        questions: All questions.
    """

    records: int
    hidden: float
    logit: float
    probability: float
    agreed: int
    questions: int


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """What a check of a bundle found.

    Attributes:
        matrices: By tensor name, what the adapter leaves out, measured anew.
        answers: None where the model does not fit here.
        skipped: Why not.
    """

    matrices: dict[str, MatrixError]
    answers: Answers | None
    skipped: str


def verify_adapter(
    bundle: Bundle,
    asks: Sequence[Ask],
    on_progress: Callable[[str, int, int, str], None],
    *,
    tuned: Path | None = None,
    dtype: str = "float32",
    device: str = "cpu",
) -> Verification:
    """Compare a bundle with the tuned weights: matrix by matrix, then in what they compute.

    Both models are loaded one after the other, as plain torch, if this machine has the memory.

    Args:
        bundle: One that `extract` made.
        asks: Joint asks to answer with both, beside a fixed one.
        on_progress: Told stage, what is done, all, and a note.
        tuned: The tuned weights, if they are no longer where they were.
        dtype: Number format to compute the answers in.
        device: cpu or cuda.

    Raises:
        BadBundle: The bundle was not extracted, or its adapter is not the one recorded.
        BadWeights: The tuned weights are not there or damaged.
        BadRequest: An ask makes no record.
    """
    extraction = bundle.manifest.extraction
    if extraction is None or bundle.adapter is None:
        raise BadBundle(
            f"{bundle.path}: it was not made by `ostinato extract`, so nothing to verify"
        )
    base, new = open_weights(bundle.base), open_weights(tuned or Path(extraction.tuned))
    factors = read_factors(bundle.adapter)
    if factors.keys() != extraction.matrices.keys():
        raise BadBundle(f"{bundle.path}: adapter and manifest name other matrices; extract again")
    errors: dict[str, MatrixError] = {}
    for index, (name, (a, b)) in enumerate(factors.items()):
        on_progress("measuring (matrices)", index, len(factors), name)
        if base.shapes.get(name) != new.shapes.get(name):
            raise BadWeights(f"{new.folder}: no {name} as in the base; give the tuned weights")
        recorded = extraction.matrices[name]
        errors[name] = measure(base, new, name, a, b, rank=recorded.rank, device=device)
    on_progress("measuring (matrices)", len(factors), len(factors), "")
    needed, free = footprint(new, DTYPES[dtype]), _free(device)
    if needed > free:
        skipped = f"the model needs {needed / 2**30:.1f} GiB, {free / 2**30:.1f} GiB are free"
        return Verification(matrices=errors, answers=None, skipped=skipped)
    encoder = Encoder(bundle.tokenizer)
    records = [
        record for ask in (_FIXED, *asks) for record in encoder.encode(ask, window=bundle.window)
    ]
    ids = [record.input_ids for record in records]
    on_progress("answering (models)", 0, 2, "base and adapter")
    ours = hidden_states(base, ids, adapter=bundle.adapter, dtype=DTYPES[dtype], device=device)
    on_progress("answering (models)", 1, 2, "tuned")
    theirs = hidden_states(new, ids, dtype=DTYPES[dtype], device=device)
    on_progress("answering (models)", 2, 2, "")
    answers = _compare(bundle, (base, ours), (new, theirs), records)
    return Verification(matrices=errors, answers=answers, skipped="")


def _compare(
    bundle: Bundle,
    ours: tuple[Weights, list[Tensor]],
    theirs: tuple[Weights, list[Tensor]],
    records: list[Record],
) -> Answers:
    head = JointHead.from_file(bundle.head, bundle.head_config)
    scored = [
        [
            logits
            for hidden, record in zip(states, records, strict=True)
            for logits in head.score(hidden, record.input_ids, lm_head, record.fields)
        ]
        for states, lm_head in (
            (states, weights.read("lm_head.weight")) for weights, states in (ours, theirs)
        )
    ]
    pairs = list(zip(*scored, strict=True))
    difference = torch.linalg.vector_norm(ours[1][0] - theirs[1][0])
    return Answers(
        records=len(records),
        hidden=float(difference / torch.linalg.vector_norm(theirs[1][0])),
        logit=max(float((one - other).abs().max()) for one, other in pairs),
        probability=max(
            float((one.softmax(0) - other.softmax(0)).abs().max()) for one, other in pairs
        ),
        agreed=sum(bool(one.argmax() == other.argmax()) for one, other in pairs),
        questions=len(pairs),
    )


def _free(device: str) -> int:
    """Give the bytes that a model may take."""
    if device == "cuda":
        return torch.cuda.mem_get_info()[0]
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
