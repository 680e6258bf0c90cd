from __future__ import annotations

import hashlib
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from games import View, load_game
from runtime.fold import advance, begin, state_hash, view_hashes
from store.events import MatchStarted
from tests.support.engines import DirectEngine
from tests.support.matches import events_of, play_one


class Seen:
    """A state of which only the views matter."""

    def __init__(self, *views: View) -> None:
        self._views = views

    def view(self, seat: int) -> View:
        return self._views[seat]


def hashes(*views: View) -> tuple[str, ...]:
    state: Any = Seen(*views)
    return view_hashes(state, len(views))


texts = st.text(st.characters(), max_size=8)


@given(texts, texts, texts, st.integers(0, 9))
def test_each_seat_has_a_hash_of_its_own_view(public: str, one: str, two: str, epoch: int) -> None:
    views = View(public, one, epoch), View(public, two, epoch)
    assert hashes(*views) == (*hashes(views[0]), *hashes(views[1]))
    assert (hashes(*views)[0] == hashes(*views)[1]) == (one == two)


def test_hash_tells_public_from_private_and_epoch_from_text() -> None:
    views = [View("ab", "c"), View("a", "bc"), View("ab", "c", 1), View("abc"), View("", "abc")]
    assert len({hashes(view) for view in views}) == len(views)


def test_view_with_a_lone_surrogate_has_a_hash() -> None:
    assert hashes(View("\ud800")) != hashes(View("\ud801"))


def test_state_hash_is_of_the_canonical_bytes() -> None:
    state = load_game("tictactoe").start(seats=2, seed=1)
    assert state_hash(state) == hashlib.sha256(state.encode()).hexdigest()


async def test_fold_of_the_events_is_where_the_match_is() -> None:
    game = load_game("kuhn_poker")
    log, result = await play_one(game, ["decision", "decision"], engine=DirectEngine())
    started, *events = events_of(log)
    assert isinstance(started, MatchStarted)
    state = game.start(seats=2, seed=started.seed)
    fold = begin("m-1", started, state)
    for version, event in enumerate(events, start=1):
        assert fold.next_version == version
        before = msgspec.structs.asdict(fold)
        fold = advance(fold, event)
        assert before["next_version"] == version
    assert fold.turn == result.turns
    assert fold.state.returns() == result.returns
    assert fold.ended is not None
    assert fold.asked == ()
    assert sum(fold.choices) == result.turns - 2
