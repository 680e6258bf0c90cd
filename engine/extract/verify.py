"""Whether base and adapter of a bundle are the tuned model."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec
import torch
from torch import Tensor

from engine.bundle import Bundle
from engine.contract import Ask
from engine.errors import BadBundle, BadWeights
from engine.extract.factors import DTYPES, measure
from engine.extract.reference import footprint, hidden_states, read_factors
from engine.extract.weights import Weights, open_weights
from engine.head import JointHead
from engine.manifest import MatrixError
from engine.selftest import FIXED
from engine.tokens import Encoder, Record

if TYPE_CHECKING:
    from engine.settings import Dtype

Engine = Literal["torch", "vllm"]
"""What computes the answers: the plain model, or what a worker runs."""


class Answers(msgspec.Struct, frozen=True, kw_only=True):
    """How answers through base and adapter differ from the tuned model's.

    Attributes:
        records: How many were compared; the first is a fixed one.
        hidden: ‖H − H'‖ / ‖H'‖ of the fixed record's states; None through vLLM, which keeps them.
        logit: The largest difference of a logit.
        probability: The largest difference of a probability.
        agreed: Questions whose most probable option is the same.
        questions: All questions.
    """

    records: int
    hidden: float | None
    logit: float
    probability: float
    agreed: int
    questions: int


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """What a check of a bundle found.

    Attributes:
        matrices: By tensor name, what the adapter leaves out, measured anew; empty if the base
            that it was made for is not here.
        engine: What computed the answers.
        quantization: How the bundle's base is quantized, if it is.
        other_base: The bundle names another base than the one that its adapter was made for.
        answers: None where the model does not fit here.
        skipped: Why not.
    """

    matrices: dict[str, MatrixError]
    engine: Engine
    quantization: str | None
    other_base: bool
    answers: Answers | None
    skipped: str = ""


def verify_adapter(
    bundle: Bundle,
    asks: Sequence[Ask],
    on_progress: Callable[[str, int, int, str], None],
    *,
    tuned: Path | None = None,
    engine: Engine = "torch",
    device: str = "cpu",
) -> Verification:
    """Compare a bundle with the tuned weights: matrix by matrix, then in what they answer.

    Both models are loaded one after the other, if this machine has the memory: as plain torch in
    float32, or in vLLM as a worker loads them, which shows that it applies every tensor. A
    quantized base is read by vLLM alone, and then in bfloat16.

    Args:
        bundle: One that `extract` made, perhaps on another base since.
        asks: Joint asks to answer with both, beside a fixed one.
        on_progress: Told stage, what is done, all, and a note.
        tuned: The tuned weights, if they are no longer where they were.
        engine: What computes the answers.
        device: cpu or cuda.

    Raises:
        BadBundle: The bundle was not extracted, or its adapter is not the one recorded.
        BadWeights: The tuned weights are not there or damaged.
        BadRequest: An ask makes no record.
        EngineMissing, EngineFailed: vLLM did not answer.
    """
    manifest = bundle.manifest
    if manifest.extraction is None or bundle.adapter is None:
        raise BadBundle(
            f"{bundle.path}: it was not made by `ostinato extract`, so nothing to verify"
        )
    new = open_weights(tuned or Path(manifest.extraction.tuned))
    errors = _measure(bundle, new, on_progress, device)
    engine = "vllm" if manifest.quantization is not None else engine
    on_cpu_exact = device == "cpu" and manifest.quantization is None
    dtype = "float32" if engine == "torch" or on_cpu_exact else "bfloat16"
    needed, free = footprint(new, DTYPES[dtype]), _free(device)
    answers, skipped = None, ""
    if needed > free:
        skipped = f"the model needs {needed / 2**30:.1f} GiB, {free / 2**30:.1f} GiB are free"
    elif engine == "vllm":
        answers = _served(bundle, new, asks, on_progress, dtype)
    else:
        answers = _plain(bundle, new, asks, on_progress, device)
    return Verification(
        matrices=errors,
        engine=engine,
        quantization=manifest.quantization,
        other_base=manifest.original is not None,
        answers=answers,
        skipped=skipped,
    )


def _measure(
    bundle: Bundle, new: Weights, on_progress: Callable[[str, int, int, str], None], device: str
) -> dict[str, MatrixError]:
    """Measure the adapter's matrices against the tuned weights, on the base it was made for."""
    manifest = bundle.manifest
    assert manifest.extraction is not None
    assert bundle.adapter is not None
    folder = Path(manifest.original.path) if manifest.original else bundle.base
    factors = read_factors(bundle.adapter)
    if factors.keys() != manifest.extraction.matrices.keys():
        raise BadBundle(f"{bundle.path}: adapter and manifest name other matrices; extract again")
    if manifest.original is not None and not folder.is_dir():
        return {}
    base = open_weights(folder)
    errors: dict[str, MatrixError] = {}
    for index, (name, (a, b)) in enumerate(factors.items()):
        on_progress("measuring (matrices)", index, len(factors), name)
        if base.shapes.get(name) != new.shapes.get(name):
            raise BadWeights(f"{new.folder}: no {name} as in the base; give the tuned weights")
        rank = manifest.extraction.matrices[name].rank
        errors[name] = measure(base, new, name, a, b, rank=rank, device=device)
    on_progress("measuring (matrices)", len(factors), len(factors), "")
    return errors


def _served(
    bundle: Bundle,
    new: Weights,
    asks: Sequence[Ask],
    on_progress: Callable[[str, int, int, str], None],
    dtype: Dtype,
) -> Answers:
    from engine.extract.served import as_bundle, served_logits

    every = [FIXED, *asks]
    sides: list[list[Tensor]] = []
    for side, name in ((bundle, "base and adapter"), (as_bundle(bundle, new.folder), "tuned")):
        stage = f"answering through vLLM: {name} (requests)"
        on_progress(stage, 0, len(every), "starting")
        told = partial(_told, on_progress, stage, len(every))
        sides.append(served_logits(side, every, told, dtype=dtype))
    return _differences(list(zip(*sides, strict=True)), records=len(every), hidden=None)


def _told(
    on_progress: Callable[[str, int, int, str], None], stage: str, total: int, done: int
) -> None:
    on_progress(stage, done, total, "")


def _plain(
    bundle: Bundle,
    new: Weights,
    asks: Sequence[Ask],
    on_progress: Callable[[str, int, int, str], None],
    device: str,
) -> Answers:
    base = open_weights(bundle.base)
    encoder = Encoder(bundle.tokenizer)
    records = [
        record for ask in (FIXED, *asks) for record in encoder.encode(ask, window=bundle.window)
    ]
    ids = [record.input_ids for record in records]
    on_progress("answering (models)", 0, 2, "base and adapter")
    ours = hidden_states(base, ids, adapter=bundle.adapter, dtype=torch.float32, device=device)
    on_progress("answering (models)", 1, 2, "tuned")
    theirs = hidden_states(new, ids, dtype=torch.float32, device=device)
    on_progress("answering (models)", 2, 2, "")
    return _compare(bundle, (base, ours), (new, theirs), records)


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
    difference = torch.linalg.vector_norm(ours[1][0] - theirs[1][0])
    return _differences(
        list(zip(*scored, strict=True)),
        records=len(records),
        hidden=float(difference / torch.linalg.vector_norm(theirs[1][0])),
    )


def _differences(pairs: list[tuple[Tensor, ...]], *, records: int, hidden: float | None) -> Answers:
    """Compare the logits of each question, as two sets of weights give them."""
    return Answers(
        records=records,
        hidden=hidden,
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
