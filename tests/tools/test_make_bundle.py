from __future__ import annotations

import filecmp
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from engine.bundle import Bundle, load_bundle
from engine.records import ask_from_questions
from engine.tokens import Encoder
from games.questions import noul
from games.registry import load_game

TOOL = Path(__file__).parents[2] / "tools" / "make_bundle.py"


def make(out: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(TOOL), "--out", str(out), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    out = tmp_path_factory.mktemp("made") / "new" / "bundle"
    result = make(out)
    assert result.returncode == 0, result.stderr
    assert "choices are arbitrary" in result.stdout
    return load_bundle(out)


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_the_same_seed_gives_the_same_bytes(bundle: Bundle, tmp_path: Path) -> None:
    again = tmp_path / "again"
    make(again)
    assert files(again) == files(bundle.path)
    _, different, missing = filecmp.cmpfiles(again, bundle.path, files(again), shallow=False)
    assert not different
    assert not missing
    assert [path.name for path in tmp_path.iterdir() if path != again] == [".again.lock"]


def test_a_folder_that_is_up_to_date_is_left_alone(bundle: Bundle) -> None:
    before = bundle.head.stat().st_mtime_ns
    result = make(bundle.path)
    assert (result.returncode, result.stdout) == (0, "")
    assert bundle.head.stat().st_mtime_ns == before


def test_another_seed_replaces_it_with_another_model(bundle: Bundle, tmp_path: Path) -> None:
    out = tmp_path / "bundle"
    shutil.copytree(bundle.path, out)
    make(out, "--seed", "2")
    other = load_bundle(out)
    assert other.part_hashes["base"] != bundle.part_hashes["base"]
    assert other.part_hashes["tokenizer"] == bundle.part_hashes["tokenizer"]


def test_a_folder_of_something_else_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("x")
    result = make(tmp_path)
    assert result.returncode == 1
    assert "did not make" in result.stderr
    assert files(tmp_path) == ["precious"]


def test_a_place_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    result = make(tmp_path / "file" / "bundle")
    assert result.returncode == 1
    assert result.stderr.count("\n") == 1
    assert "choose a folder" in result.stderr


def test_it_is_marked_as_random_and_fits_the_long_game(bundle: Bundle) -> None:
    assert bundle.arbitrary
    assert bundle.window == 32768
    assert bundle.adapter_rank == 8
    state = load_game("expedition").start(seats=1, seed=0)
    ask = ask_from_questions(state=state.view(0).text, questions=(noul("q", "Is it so?"),))
    [record] = Encoder(bundle.tokenizer).encode(ask, window=bundle.window)
    # about four characters a token, as a large tokenizer has on such text
    assert 3 < len(ask.state) / len(record.input_ids) < 5
