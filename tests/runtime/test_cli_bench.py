from __future__ import annotations

import json

import pytest

from engine.figures import NUMBERS, FeatureMemory, Figure, Measured, number_of_states
from runtime.cli.app import run
from tests.support.bundles import adapter_bundle


def figures(sizes: tuple[int, ...]) -> list[Figure]:
    kinds = ["known", "grown", "new", *(f"{number} at once" for number in NUMBERS)]
    rows = [
        (way, tokens, kind)
        for tokens in sizes
        for way in ("ostinato", "whole blocks", "nothing reused")
        for kind in kinds
    ]
    many = max(NUMBERS)
    rows += [
        ("ostinato", tokens, f"{many} {how}") for tokens in sizes for how in ("in turn", "joint")
    ]
    return [
        Figure(way=way, tokens=tokens, kind=kind, ms=10.0 + i, cpu_ms=1000.0 + i, read=7)
        for i, (way, tokens, kind) in enumerate(rows)
    ]


@pytest.fixture
def measured(monkeypatch, tmp_path):
    """Stands for the engine, which takes minutes."""
    bench = pytest.importorskip("engine.llm.bench")

    async def measure(bundle, settings, *, sizes, repeats, report):
        report("done", number_of_states(sizes, repeats))
        return Measured(figures(tuple(sizes)), FeatureMemory(100, 64, 2, 12_800))

    monkeypatch.setattr(bench, "measure", measure)


def test_what_cannot_be_measured_is_refused(capsys):
    for arguments, message in (
        (["--sizes", "many"], "numbers with commas"),
        (["--sizes", "10"], "50 tokens at least"),
        (["--plot", "figure.pdf"], ".svg"),
        (["--model", "mock:seed=1"], "no engine to measure"),
    ):
        assert run(["bench", "engine", *arguments]) == 1
        assert message in capsys.readouterr().err


def test_figures_become_tables_and_a_plot(measured, capsys, tmp_path):
    pytest.importorskip("matplotlib")
    adapter_bundle(tmp_path)
    plot = tmp_path / "engine.svg"
    arguments = ["bench", "engine", "--model", str(tmp_path), "--sizes", "300,2000"]
    assert run([*arguments, "--plot", str(plot)]) == 0
    shown = capsys.readouterr().out
    assert "100 slots x 64 numbers x 2 bytes = 12,800 bytes" in shown
    assert "<svg" in plot.read_text()

    assert run([*arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["figures"]) == len(figures((300, 2000)))
    assert run([*arguments, "--sizes", "40000"]) == 1
    assert "the window is 32768" in capsys.readouterr().err
