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


def record_answer(bundle: Bundle) -> Bundle:
    """Give the bundle with its answer to the fixed question in `bundle.json`.

    It is left as it is where the answer cannot be had: the model in float32 does not fit into the
    memory that is free, its base is quantized or no whole model, or transformers is not installed.
    """
    weights = open_weights(bundle.base)
    try:
        import psutil  # vLLM brings it along, and transformers
    except ImportError:
        return bundle
    needed = footprint(weights, torch.float32)
    if bundle.manifest.quantization or needed > psutil.virtual_memory().available:
        return bundle
    [record] = Encoder(bundle.tokenizer).encode(FIXED, window=bundle.window)
    try:
        [states] = hidden_states(
            weights, [record.input_ids], adapter=bundle.adapter, dtype=torch.float32, device="cpu"
        )
    except (EngineMissing, BadWeights):
        return bundle
    head = JointHead.from_file(bundle.head, bundle.head_config)
    [logits] = head.score(states, record.input_ids, weights.read("lm_head.weight"), record.fields)
    return with_answer(bundle, tuple(round(logit, 5) for logit in logits.tolist()))
