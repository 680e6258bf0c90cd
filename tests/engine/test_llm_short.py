"""Questions whose rest is short are read in one step, as on a card."""

from __future__ import annotations

import pytest

from tests.engine.test_llm_reuse import BAND, distance, start, words
from tests.support.bundles import tuned_bundle

pytest.importorskip("vllm")

pytestmark = pytest.mark.vllm


async def test_a_lone_question_on_a_grown_state_is_one_step_until_the_rest_is_long(
    tmp_path, monkeypatch
):
    monkeypatch.setattr("engine.llm.launch.SHORT_ON_CPU", 250)
    asker = await start(tuned_bundle(tmp_path), window=4096, max_batched_tokens=8192)
    try:
        state = words(900, 1)
        first = await asker.ask(state)
        assert first.steps == 2
        kept = (asker.start + 900) // 16 * 16
        tail = first.tokens - asker.start - 900
        found = []
        for version in range(1, 4):
            state += words(60, version)
            reply = await asker.ask(state)
            assert distance(reply, await asker.cold(state)) < BAND
            short = asker.start + 900 + 60 * version + tail - kept <= 250
            found.append((reply.steps, reply.tokens_reused, reply.missed))
            assert found[-1] == (1 if short else 2, kept, "")
            if not short:
                kept = (asker.start + 900 + 60 * version) // 16 * 16
        assert {steps for steps, _, _ in found} == {1, 2}
        state += words(60, 9)
        several = await asker.ask(state, questions=(0, 1, 2))
        assert several.steps >= 2
    finally:
        await asker.backend.close()
