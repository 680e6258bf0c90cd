"""What decision models read of the games that ship: the text to train a tokenizer on."""

from __future__ import annotations

import random
from collections.abc import Iterator

from engine.records import ask_from_questions
from engine.tokens import PREFIX, SUFFIX, schema_pieces
from games.base import CHANCE, State
from games.registry import BUILT_IN, load_game

MATCHES = 12  # of each game; more only repeat the same words


def game_texts() -> Iterator[str]:
    """Give texts, always the same ones: rules, matches, questions and options."""
    yield PREFIX + SUFFIX
    for name in sorted(BUILT_IN):
        game = load_game(name)
        for seed in range(MATCHES):
            state = game.start(seats=game.facts.min_seats, seed=seed)
            yield from _match(state, random.Random(seed), whole=seed == 0)


def _match(state: State, source: random.Random, *, whole: bool) -> Iterator[str]:
    """Play at random; of the text that all matches start with, give it only if `whole`."""
    start = len(state.view(0).public)
    public = state.view(0).public if whole else ""
    while state.actor is not None:
        if state.actor == CHANCE:
            state = state.apply(source.choice(state.outcomes()).id)
            continue
        ask = ask_from_questions(state="", questions=state.questions())
        yield from (piece.text for piece in schema_pieces(ask.fields))
        yield state.view(state.actor).private
        state = state.apply(source.choice(state.options()).id)
    yield public + state.view(0).public[start:]
