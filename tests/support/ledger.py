"""A ledger of every row that an engine computes, to show that features and values travel together.

Each row gets a serial number, kept beside the features and copied with them. When a record is
complete, each of its positions must lead to a row that was computed for exactly its adapter and
its tokens up to there, and whose feature and value are still the bits of that time.
"""

from __future__ import annotations

from typing import Any


def keep_ledger(worker: Any) -> None:
    """Begin it, in the engine process."""
    import hashlib

    import torch

    reader, pool, runner = worker._reader, worker._reader.pool, worker.model_runner
    group = runner.kv_cache_config.kv_cache_groups[worker._group]
    cache = runner.compilation_config.static_forward_context[group.layer_names[0]].kv_cache
    serials = torch.full((len(pool.rows),), -1, dtype=torch.long)
    ledger: list[tuple[bytes, Any, Any]] = []
    counts = {"records": 0, "positions": 0, "copies": 0, "wrong": 0}
    worker.ledger = counts
    stock_copy, stock_step = pool.copy, reader.step

    def bits(slot: int) -> tuple[Any, Any]:
        block, offset = divmod(slot, pool.block_size)
        # the CPU keeps all keys of a block, packed, before all its values
        heads, _, size = cache[block].shape
        values = cache[block].chunk(2, dim=1)[1].reshape(heads, -1, size // 2)
        return (
            pool.rows[slot].view(torch.int32).clone(),
            values[:, offset].reshape(-1).view(torch.int32).clone(),
        )

    def prefixes(request_id: str, start: int, end: int) -> list[bytes]:
        request = runner.requests[request_id]
        adapter = request.lora_request.lora_name if request.lora_request else ""
        digest = hashlib.sha256(adapter.encode())
        found = []
        tokens = [*request.prompt_token_ids, *request.output_token_ids]
        for position in range(end):
            token = tokens[position] if position < len(tokens) else -1
            digest.update(token.to_bytes(4, "little", signed=True))
            if position >= start:
                found.append(digest.digest())
        return found

    def copy(pairs: Any) -> None:
        stock_copy(pairs)
        blocks = serials.view(-1, pool.block_size)
        source, target = torch.tensor(pairs).unbind(1)
        blocks[target] = blocks[source]
        counts["copies"] += len(pairs)

    def step(request_ids: Any, lengths: Any, starts: Any, hidden: Any, slots: Any, of: Any) -> Any:
        logits = stock_step(request_ids, lengths, starts, hidden, slots, of)
        row = 0
        for name in request_ids:
            keys = prefixes(name, starts[name], starts[name] + lengths[name])
            for key, slot in zip(keys, slots[row : row + lengths[name]].tolist(), strict=True):
                serials[slot] = len(ledger)
                ledger.append((key, *bits(slot)))
            row += lengths[name]
        for name in logits:
            blocks = runner.requests[name].block_ids[worker._group]
            length = len(runner.requests[name].prompt_token_ids)
            for position, key in enumerate(prefixes(name, 0, length)):
                block = blocks[position // pool.block_size]
                slot = block * pool.block_size + position % pool.block_size
                serial = int(serials[slot])
                feature, value = bits(slot)
                counts["wrong"] += not (
                    serial >= 0
                    and ledger[serial][0] == key
                    and ledger[serial][1].equal(feature)
                    and ledger[serial][2].equal(value)
                )
            counts["records"] += 1
            counts["positions"] += length
        return logits

    pool.copy, reader.step = copy, step


def read_ledger(worker: Any) -> dict[str, int]:
    """Give its counts: records, positions, copies of blocks, and positions that were wrong."""
    return worker.ledger
