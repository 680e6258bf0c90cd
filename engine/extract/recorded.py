"""Record in a bundle what its model answers to the fixed question, computed without vLLM."""

from __future__ import annotations

import torch

from engine.bundle import Bundle, with_answer
from engine.errors import BadWeights, EngineMissing
from engine.extract.reference import footprint, hidden_states
from engine.extract.weights import open_weights
from engine.head import JointHead
from engine.selftest import FIXED
from engine.tokens import Encoder


def record_answer(bundle: Bundle, *, most: int | None = None) -> str:
    """Write the answer to the fixed question into `bundle.json`.

    Args:
        bundle: Of which to ask.
        most: Bytes that the model in float32 may take; None: what is free.

    Returns:
        Why the answer cannot be had, and the bundle is left as it is; empty if it is recorded.
    """
    if bundle.manifest.quantization:
        return f"the base is quantized ({bundle.manifest.quantization})"
    weights = open_weights(bundle.base)
    needed = footprint(weights, torch.float32)
    if most is not None and needed > most:
        return (
            f"the model in float32 takes {needed / 1e9:.0f} GB, more than an extraction may;"
            " `ostinato extract --verify` records it where they are free"
        )
    try:
        import psutil  # vLLM brings it along, and transformers

        if needed > psutil.virtual_memory().available:
            return f"the model in float32 takes {needed / 1e9:.0f} GB, more than was free"
        [record] = Encoder(bundle.tokenizer).encode(FIXED, window=bundle.window)
        [states] = hidden_states(
            weights, [record.input_ids], adapter=bundle.adapter, dtype=torch.float32, device="cpu"
        )
    except ImportError:
        return "psutil is not installed; install ostinato[cpu] or ostinato[gpu]"
    except (EngineMissing, BadWeights) as error:
        return str(error)
    head = JointHead.from_file(bundle.head, bundle.head_config)
    [logits] = head.score(states, record.input_ids, weights.read("lm_head.weight"), record.fields)
    with_answer(bundle, tuple(round(logit, 5) for logit in logits.tolist()))
    return ""
