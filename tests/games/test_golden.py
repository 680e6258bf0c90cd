from __future__ import annotations

import pytest

from games.registry import BUILT_IN
from tests.golden.regenerate import FOLDER, GAMES, path_of, playthrough


@pytest.mark.parametrize("game", GAMES)
def test_a_match_shows_what_it_always_showed(game: str):
    expected = path_of(game).read_text(encoding="utf-8").splitlines()
    found = playthrough(game).splitlines()
    for number, (old, new) in enumerate(zip(expected, found, strict=False), start=1):
        assert new == old, (
            f"{path_of(game).name}:{number} differs; if that is meant, raise the game's version and"
            " run python -m tests.golden.regenerate"
        )
    assert len(found) == len(expected)


def test_every_built_in_game_has_a_golden_text_and_no_other_lies_around():
    assert set(BUILT_IN) <= set(GAMES)
    assert {path.name for path in FOLDER.glob("*.txt")} == {path_of(game).name for game in GAMES}
