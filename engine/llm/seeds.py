"""Seeded sampling on the CPU, where vLLM's own ends the engine or draws without the seed.

vLLM samples for every request of a step and throws away what came for a prompt that is not wholly
read yet. It then sets the request's random numbers back by as many as a CUDA kernel draws, which
generators of a CPU cannot do: the engine died with the first seeded prompt of two chunks. A
generator that is out of the way while its token is not wanted need not be set back.

And its CPU sampler draws for all from one source unless every request of the step has a seed, by
a function that it compiles on the first use. Its plain sampler gives each request its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


def install(runner: Any) -> None:
    """Let the runner sample with vLLM's plain sampler; call it when the model is loaded."""
    sampler = runner.sampler.topk_topp_sampler
    sampler.forward = sampler.forward_native


@contextmanager
def only_wanted(runner: Any) -> Iterator[None]:
    """Keep the generators of requests whose token is thrown away out of vLLM's reach."""
    batch = runner.input_batch
    unread = runner.discard_request_mask.np[: batch.num_reqs].nonzero()[0].tolist()
    kept = {row: batch.generators.pop(row) for row in unread if row in batch.generators}
    try:
        yield
    finally:
        batch.generators.update(kept)
