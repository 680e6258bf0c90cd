"""The small trained model that ships."""

from __future__ import annotations

import pytest

from engine.bundle import load_bundle, verify
from engine.settings import WorkerSettings
from games.base import CHANCE
from games.registry import load_game
from runtime.cli.common import SHIPPED, model_of
from runtime.exam.asking import Asker
from runtime.exam.exam import Options, run
from runtime.settings import Settings


def test_it_is_the_model_that_is_taken_if_none_is_named():
    assert model_of(None, Settings()).hash == load_bundle(SHIPPED).hash


def test_it_is_whole_small_and_stands_alone():
    bundle = load_bundle(SHIPPED)
    verify(bundle)
    assert not bundle.arbitrary
    assert bundle.base.is_relative_to(bundle.path)
    assert bundle.adapter is not None
    assert bundle.manifest.answer
    assert bundle.manifest.extraction is not None
    assert sum(file.stat().st_size for file in SHIPPED.rglob("*") if file.is_file()) < 16_000_000
    assert bundle.hash in (SHIPPED / "MODEL_CARD.md").read_text()


@pytest.mark.vllm
@pytest.mark.timeout(300)
async def test_it_decides_well_in_its_games_and_validly_in_others():
    pytest.importorskip("vllm")
    from engine.llm.backend import VllmBackend

    backend = await VllmBackend.start(
        load_bundle(SHIPPED), WorkerSettings(), window=2048, max_record_tokens=None
    )
    try:
        options = Options(games=("tictactoe", "kuhn_poker"), positions=20, matches=1, maps=0)
        found = await run(backend, options, lambda *_: None)
        rows = {row.question: row for row in found.questions}
        assert rows["tictactoe: move"].right >= 0.85  # 97 % of many
        assert rows["tictactoe: marks"].right == 1.0
        assert found.kuhn is not None
        assert found.kuhn.exploitability <= 0.05
        asker = Asker(backend)
        for name in ("holdem", "openspiel:chess"):  # never seen in training
            state = load_game(name).start(seats=2, seed=3)
            while state.actor == CHANCE:
                state = state.apply(state.outcomes()[0].id)
            assert state.actor is not None
            for answer in await asker.ask(state.view(state.actor), state.questions()):
                assert sum(answer) == pytest.approx(1.0, abs=1e-5)
                assert all(0.0 <= each <= 1.0 for each in answer)
    finally:
        await backend.close()
