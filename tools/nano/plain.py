"""Plain text and short talks of our own, so that the base can say something about the games."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Final

from games.expedition.tables import RULES
from games.kuhn_poker import CARDS
from games.registry import load_game
from games.solved import connect_four, tictactoe
from games.tictactoe import CELLS, LINES

_FACTS: Final = (
    "Tic-tac-toe is played on a board of three rows and three columns.",
    "In tic-tac-toe, X moves first and O answers.",
    "Three equal marks in a row, a column or a diagonal win the match.",
    "If the board is full and nobody has three in a line, the match is a draw.",
    "With best play on both sides, tic-tac-toe is a draw.",
    "If your opponent has two in a line and the third cell is empty, take that cell.",
    "If you have two in a line and the third cell is empty, play there and win.",
    "Connect four has seven columns of six places.",
    "In connect four a counter falls to the lowest empty place of its column.",
    "Four counters in a line, straight or diagonal, win the match.",
    "In connect four the middle column is part of most lines, so it is a good place to begin.",
    "A full column takes no more counters.",
    "Kuhn poker has three cards: Jack, Queen and King.",
    "In Kuhn poker each player puts one chip into the pot and gets one card.",
    "After a bet the other player may call for one chip or give up the pot.",
    "The King always wins a showdown, and the Jack always loses it.",
    "A player with the Jack may bluff now and then, so that bets are called.",
    "An expedition crosses a map from west to east.",
    "On an expedition each day has five turns: weather, step, ground, creature and night.",
    "The traveller may march, rest or forage.",
    "When energy falls to zero, the traveller collapses and the journey is over.",
    "Rest where the ground gives much energy, and march when the weather is kind.",
    "A ration is eaten on a day of rest if none of it is wasted.",
    "A decision model reads a state and answers questions about it with probabilities.",
    "A choice picks one of several options, a score gives a level, and a noul says true or false.",
)
_TALKS: Final = (
    ("What games do you know?", "I know tic-tac-toe, connect four, Kuhn poker and expedition."),
    ("Who are you?", "I am nano, a small model that decides in games."),
    ("Hello!", "Hello! Ask me about one of the games."),
    ("Can you play chess?", "No, I was not trained on chess. My answers there would mean nothing."),
    ("Thank you.", "You are welcome. Good luck in your next match!"),
    ("What is a decision?", "A decision gives a probability to every option of a question."),
    ("Is tic-tac-toe a win for X?", "No. With best play on both sides it is a draw."),
    ("Which card is the highest in Kuhn poker?", "The King is the highest card in Kuhn poker."),
    ("Where should I start in connect four?", "Start in the middle column, number 3."),
    ("How do I win an expedition?", "March east, keep your energy up, and reach the far side."),
)
_ASKS: Final = ("Tell me about {}.", "What about {}?", "Say something about {}.", "Explain {}.")


def plain_texts(source: random.Random) -> Iterator[str]:
    """Give texts for ever: sentences, talks as the chat template has them, rules."""
    facts = [*_FACTS, *_about_games()]
    rules = [load_game(name).start(seats=2, seed=0).view(0).public for name in _BOARD_GAMES]
    while True:
        kind = source.random()
        if kind < 0.45:
            yield _talk(source, facts)
        elif kind < 0.95:
            number = source.randint(1, 6)
            yield " ".join(source.choice(facts) for _ in range(number)) + "<|endoftext|>"
        else:
            yield source.choice(rules)


_BOARD_GAMES: Final = ("tictactoe", "kuhn_poker", connect_four.GAME)


def _talk(source: random.Random, facts: list[str]) -> str:
    turns = []
    for _ in range(source.randint(1, 3)):
        if source.random() < 0.5:
            asked, answered = source.choice(_TALKS)
        else:
            answered = source.choice(facts)
            words = answered.rstrip(".").split()
            about = " ".join(words[: source.randint(2, 4)])
            asked = source.choice(_ASKS).format(about[0].lower() + about[1:])
        turns.append(
            f"<|im_start|>user\n{asked}<|im_end|>\n"
            f"<|im_start|>assistant\n<think>\n\n</think>\n\n{answered}<|im_end|>\n"
        )
    return "".join(turns)


def _about_games() -> Iterator[str]:
    for line in LINES:
        cells = [CELLS[cell] for cell in line]
        yield f"{cells[0].capitalize()}, {cells[1]} and {cells[2]} are a line in tic-tac-toe."
    for low, card in enumerate(CARDS[:-1]):
        yield f"In Kuhn poker the {CARDS[low + 1]} beats the {card}."
    for terrain in RULES.terrains:
        yield f"On an expedition a march into {terrain.name} costs {terrain.cost} energy."
        yield f"A day of rest in {terrain.name} gives {terrain.rest} energy."
        yield f"The nights in {terrain.name} are {terrain.shelter}."
    for creature in RULES.creatures:
        yield f"The {creature.name} may be met on an expedition."
    for item in RULES.items:
        yield f"The {item.name} is a piece of equipment."
    yield f"The longest line of play in {tictactoe.GAME} has nine moves."
