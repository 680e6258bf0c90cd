"""The model in plain torch, without vLLM: to compare what two sets of weights compute."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
import torch
from safetensors import safe_open
from torch import Tensor

from engine.adapter import PEFT_PREFIX, TENSORS
from engine.errors import BadWeights, EngineMissing
from engine.extract.weights import Weights

_PREFIX = "model.language_model."


@torch.inference_mode()
def hidden_states(
    weights: Weights,
    records: Iterable[Sequence[int]],
    *,
    adapter: Path | None = None,
    dtype: torch.dtype,
    device: str,
) -> list[Tensor]:
    """Give the states after the final norm of each record, [T, H] in float32 on the CPU.

    Args:
        weights: A checkpoint in the release's layout.
        records: Token ids.
        adapter: Folder of an adapter to add to the weights.
        dtype: Number format to compute in.
        device: cpu or cuda.

    Raises:
        EngineMissing: transformers, which vLLM brings along, is not installed.
        BadWeights: The tensors are not those of the model in `config.json`.
    """
    model = _model(weights, adapter, dtype, device)
    states = [
        model(torch.tensor([list(record)], device=device), use_cache=False)
        .last_hidden_state[0]
        .to("cpu", torch.float32)
        for record in records
    ]
    del model
    gc.collect()  # the model is in cycles, and the next one needs its place
    return states


def footprint(weights: Weights, dtype: torch.dtype) -> int:
    """Give the bytes that the text model takes."""
    sizes = (
        weights.sizes[name] * dtype.itemsize // (4 if weights.dtypes[name] == "F32" else 2)
        for name in weights.sizes
        if name.startswith(_PREFIX)
    )
    return sum(sizes)


def read_factors(adapter: Path) -> dict[str, tuple[Tensor, Tensor]]:
    """Give A and B of an adapter by the name of the tensor that they change."""
    factors: dict[str, tuple[Tensor, Tensor]] = {}
    with safe_open(adapter / TENSORS, framework="pt") as file:
        for key in sorted(file.keys()):
            if key.endswith(".lora_A.weight"):
                module = key.removesuffix(".lora_A.weight")
                b = file.get_tensor(f"{module}.lora_B.weight")
                name = f"{module.removeprefix(PEFT_PREFIX)}.weight"
                factors[name] = (file.get_tensor(key), b)
    return factors


def _model(
    weights: Weights, adapter: Path | None, dtype: torch.dtype, device: str
) -> torch.nn.Module:
    try:
        from transformers import Qwen3_5TextConfig
        from transformers.utils import logging

        # it would say that plain operators are slow: they are taken for being plain
        logging.set_verbosity_error()
        from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5TextModel
    except ImportError as error:
        raise EngineMissing(
            "transformers is not installed, and with it the plain model; install ostinato[cpu] or "
            "ostinato[gpu]"
        ) from error
    text = msgspec.json.decode((weights.folder / "config.json").read_bytes())["text_config"]
    config = Qwen3_5TextConfig(**text)
    config._attn_implementation = "sdpa"
    with torch.device("meta"):
        model = Qwen3_5TextModel(config)
    factors = read_factors(adapter) if adapter else {}
    tensors: dict[str, Tensor] = {}
    for name in weights.shapes:
        if name.startswith(_PREFIX):
            tensor = weights.read(name).to(device, dtype, copy=True)
            if name in factors:
                a, b = (factor.to(device, dtype) for factor in factors[name])
                tensor.addmm_(b, a)
            tensors[name.removeprefix(_PREFIX)] = tensor
    try:
        model.load_state_dict(tensors, assign=True)
    except RuntimeError as error:  # one line for each tensor, in several lines
        first = str(error).splitlines()[1].strip()[:200]
        raise BadWeights(
            f"{weights.folder}: not the model that its config.json describes: {first}"
        ) from error
    # its frequencies are no weights, so loading leaves them without values
    model.rotary_emb = type(model.rotary_emb)(config).to(device)
    return model.eval()
