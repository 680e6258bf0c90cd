"""Connect four on 7 columns of 6, searched to a depth with bit boards.

A board is two numbers: the counters of the player to move, and all counters. Bit 7c + r is row r,
from below, of column c; the seventh bit of a column stays empty, so that shifts do not wrap. After
P. Pons, "Solving Connect 4: how to build a perfect AI" (2015), here with a horizon.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from games.base import State
from games.questions import Option
from games.solved.judged import (
    Judged,
    Position,
    is_test,
    judged_choice,
    judged_noul,
    judged_score,
    softly,
)

GAME: Final = "openspiel:connect_four(layout=replies)"
DEPTH: Final = 6
"""Plies that the judge of positions looks ahead, wins at its horizon not counted."""

TEMPERATURE: Final = 0.04
COLUMNS, ROWS = 7, 6
_HEIGHT = ROWS + 1
_BOTTOM = sum(1 << (_HEIGHT * column) for column in range(COLUMNS))
_FULL = _BOTTOM * ((1 << ROWS) - 1)
_COLUMN = [((1 << ROWS) - 1) << (_HEIGHT * column) for column in range(COLUMNS)]
_ORDER = (3, 2, 4, 1, 5, 0, 6)
_CENTRE = (_COLUMN[3], _COLUMN[2] | _COLUMN[4])
_ODD = sum(1 << row for row in range(0, ROWS, 2)) * _BOTTOM
_WIN = 1000
_OPENING = 2
_OUTLOOKS = (
    "The player to move is about to lose.",
    "The player to move is worse.",
    "Neither is clearly better.",
    "The player to move is better.",
    "The player to move is about to win.",
)


def won(counters: int) -> bool:
    """Say whether four of these counters are in a line."""
    for shift in (1, _HEIGHT, _HEIGHT - 1, _HEIGHT + 1):
        pairs = counters & (counters >> shift)
        if pairs & (pairs >> (2 * shift)):
            return True
    return False


def winning_places(counters: int, mask: int) -> int:
    """Give the empty places that would complete four of these counters."""
    found = (counters << 1) & (counters << 2) & (counters << 3)
    for shift in (_HEIGHT, _HEIGHT - 1, _HEIGHT + 1):
        pair = (counters << shift) & (counters << 2 * shift)
        found |= pair & (counters << 3 * shift)
        found |= pair & (counters >> shift)
        pair = (counters >> shift) & (counters >> 2 * shift)
        found |= pair & (counters << shift)
        found |= pair & (counters >> 3 * shift)
    return found & (_FULL ^ mask)


def playable(mask: int) -> int:
    """Give the place in each column where the next counter lands."""
    return (mask + _BOTTOM) & _FULL


class Searcher:
    """Looks ahead; what it has seen at a depth it looks up.

    Args:
        depth: Plies to look ahead from the position asked about.
    """

    def __init__(self, depth: int = DEPTH) -> None:
        self.depth = depth
        self._seen: dict[tuple[int, int, int], tuple[int, int]] = {}

    def values(self, own: int, mask: int) -> dict[int, float]:
        """Give for each column that is not full what playing it leads to, from -1 to 1."""
        if len(self._seen) > 200_000:
            self._seen.clear()
        places = playable(mask)
        found: dict[int, float] = {}
        for column in range(COLUMNS):
            place = places & _COLUMN[column]
            if not place:
                continue
            if won(own | place):
                found[column] = 1.0
                continue
            worth = -self._search(own ^ mask, mask | place, self.depth - 1, -_WIN, _WIN)
            found[column] = _scaled(worth)
        return found

    def _search(self, own: int, mask: int, depth: int, low: int, high: int) -> int:
        """Negamax with alpha and beta; a win counts `_WIN` less the plies that it takes."""
        places = playable(mask)
        if not places:
            return 0
        if winning_places(own, mask) & places:
            return _WIN - mask.bit_count() - 1
        threats = winning_places(own ^ mask, mask)
        forced = threats & places
        if forced:
            if forced & (forced - 1):
                return -_WIN + mask.bit_count() + 2
            places = forced
        if depth <= 0:
            return _estimate(own, mask, threats)
        seen = self._seen.get((own, mask, depth))
        if seen is not None:
            low, high = max(low, seen[0]), min(high, seen[1])
            if low >= high:
                return low
        start, best = low, -_WIN
        for column in _ORDER:
            place = places & _COLUMN[column]
            if not place:
                continue
            worth = -self._search(own ^ mask, mask | place, depth - 1, -high, -low)
            best = max(best, worth)
            low = max(low, worth)
            if low >= high:
                break
        bounds = (-_WIN if best <= start else best, _WIN if best >= high else best)
        self._seen[own, mask, depth] = bounds
        return best


def _estimate(own: int, mask: int, against: int) -> int:
    """Guess at the horizon: places that would win later, and counters near the middle."""
    other, places = own ^ mask, winning_places(own, mask)
    # the player to move at an even number of counters is the first one, whom odd rows favour
    good, bad = (_ODD, _FULL ^ _ODD) if mask.bit_count() % 2 == 0 else (_FULL ^ _ODD, _ODD)
    return (
        12 * (places.bit_count() - against.bit_count())
        + 12 * ((places & good).bit_count() - (against & bad).bit_count())
        + 4 * ((own & _CENTRE[0]).bit_count() - (other & _CENTRE[0]).bit_count())
        + 2 * ((own & _CENTRE[1]).bit_count() - (other & _CENTRE[1]).bit_count())
    )


def _scaled(worth: int) -> float:
    """Give a value from -1 to 1: sure results beyond 0.9, guesses within 0.8."""
    if abs(worth) > _WIN // 2:
        plies = _WIN - abs(worth)
        return (1.0 - 0.002 * plies) * (1 if worth > 0 else -1)
    return max(-0.8, min(0.8, worth / 150))


def two_plies(own: int, mask: int) -> dict[int, int]:
    """Give for each column that is not full 1 for a win, -1 if the other then wins, or 0."""
    places, found = playable(mask), dict[int, int]()
    for column in range(COLUMNS):
        place = places & _COLUMN[column]
        if not place:
            continue
        after = mask | place
        lost = winning_places(own ^ mask, after) & playable(after)
        found[column] = 1 if won(own | place) else -1 if lost else 0
    return found


def board(state: State) -> tuple[int, int]:
    """Read own and all counters from what the seat to move sees."""
    assert state.actor is not None
    return read_board(state.view(state.actor).private, "xo"[state.actor])


def read_board(text: str, own_mark: str) -> tuple[int, int]:
    """Read the last six lines of a picture."""
    own = mask = 0
    for row, line in enumerate(reversed(text.strip().splitlines()[-ROWS:])):
        for column, mark in enumerate(line.strip()):
            if mark != ".":
                place = 1 << (_HEIGHT * column + row)
                mask |= place
                own |= place if mark == own_mark else 0
    return own, mask


def picture(own: int, mask: int) -> str:
    """Give a name of the position: a letter for each place, or for its mirror image's."""

    def told(columns: Sequence[int]) -> str:
        places = [1 << (_HEIGHT * column + row) for column in columns for row in range(ROWS)]
        return "".join("a" if own & p else "b" if mask & p else "." for p in places)

    return min(told(range(COLUMNS)), told(range(COLUMNS - 1, -1, -1)))


def column_of(label: str) -> int:
    """Give the column that an option's label names."""
    return int(label[1:])


def best_action(state: State, searcher: Searcher) -> str:
    """Give the label of the best move, the one nearest the middle of equals."""
    found = searcher.values(*board(state))
    best = max(found, key=lambda column: (found[column], -abs(column - 3)))
    return next(option.id for option in state.options() if column_of(option.id) == best)


def key(state: State) -> tuple[str, bool]:
    """Name the position and its mirror image, and say whether it is for tests."""
    own, mask = board(state)
    name = f"openspiel:connect_four {picture(own, mask)}"
    return name, mask.bit_count() > _OPENING and is_test(name)


def position(state: State, searcher: Searcher) -> Position:
    """Judge a state in which a seat is to move."""
    assert state.actor is not None
    name, test = key(state)
    return Position(
        game=GAME,
        key=name,
        test=test,
        view=state.view(state.actor),
        judged=_judged(state, *board(state), searcher),
    )


def _judged(state: State, own: int, mask: int, searcher: Searcher) -> tuple[Judged, ...]:
    [question] = state.questions()
    by_column = searcher.values(own, mask)
    exact = tuple(by_column[column_of(option.id)] for option in question.options)
    best, places = max(exact), playable(mask)
    outlook = sum(best > bound for bound in (-0.9, -0.15, 0.15, 0.8))
    threat = bool(winning_places(own ^ mask, mask) & places)
    heights = [(mask & _COLUMN[column]).bit_count() for column in range(COLUMNS)]
    full = [Option(f"column {column}") for column in range(COLUMNS)]
    highest = [f"column {c}" for c in range(COLUMNS) if heights[c] == max(heights)]
    return (
        Judged(question=question, target=softly(exact, TEMPERATURE), values=exact),
        judged_noul(
            "wins_now", "Can the player to move make four in a line at once?", 1.0 in exact
        ),
        judged_noul("threat", "Could the other player make four in a line next turn?", threat),
        judged_noul("centre", "Is the middle column, number 3, empty?", heights[3] == 0),
        judged_score("outlook", "How does the player to move stand?", _OUTLOOKS, outlook),
        judged_score(
            "height",
            "How many counters are in the middle column, number 3?",
            tuple(f"{number} counters" for number in range(ROWS + 1)),
            heights[3],
        ),
        judged_choice("highest", "Which column holds the most counters?", full, highest),
    )
