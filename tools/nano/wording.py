"""The same questions in other words, with other ids, and with some of the options."""

from __future__ import annotations

import random
import string
from typing import Final

import msgspec

from games.questions import Option, Question
from games.solved import Judged, connect_four, expedition, kuhn_poker, tictactoe
from games.solved.judged import evenly

_MOVE: Final = {
    tictactoe.GAME: (
        "What is the best move?",
        "Choose the cell for your next mark.",
        "Which cell should be taken now?",
        "Pick the move of a perfect player.",
    ),
    kuhn_poker.GAME: (
        "Pass or bet?",
        "What is the right action here?",
        "Which action is best with this card?",
        "Decide what to do.",
    ),
    connect_four.GAME: (
        "Which move is best?",
        "Choose a column for your next counter.",
        "Where should the next counter go?",
        "Pick the strongest move.",
    ),
    expedition.GAME: (
        "What should the traveller do today?",
        "Choose today's step.",
        "Which step leads to the most points?",
        "Pick the best step for this day.",
    ),
}
_OTHER: Final = {
    "wins_now": ("Is there a move that wins at once?", "Can this player win right now?"),
    "threat": ("Is the opponent one move away from winning?", "Must a threat be stopped?"),
    "drawn": ("Is this a draw under best play?",),
    "result": ("What is the outcome under best play?",),
    "marks": ("Count the marks on the board.",),
    "turn": ("Who is to move?",),
    "corners": ("Is it true that top-left and bottom-right are free?",),
    "facing_bet": ("Is there a bet to answer?",),
    "higher": ("Do you hold the better card?",),
    "king": ("Do you hold the King?",),
    "rank": ("Where does your card rank?",),
    "card": ("Name your card.",),
    "centre": ("Is column 3 without counters?",),
    "outlook": ("Judge the position for the player to move.",),
    "height": ("How high is column 3?",),
    "highest": ("Name the highest column.",),
    "energy_low": ("By the rules, is energy low now?", "Is the traveller low on energy?"),
    "rations": ("Are there rations left?",),
    "half_way": ("Has the traveller made half of the way or more?",),
    "hope": ("How well can this journey still end?",),
    "energy": ("State the traveller's energy.",),
    "land": ("Name the terrain under the traveller's feet.",),
}
_YES_NO: Final = (("yes", "no"), ("It is so.", "It is not so."), ("Correct.", "Wrong."))
_SURE: Final = 1e-6  # less of the right distribution says nothing about the options kept
_IDS: Final = ("q", "question", "ask", "field", "item", "check", "x", "decision")


def vary(judged: Judged, game: str, source: random.Random) -> Judged:
    """Change some of wording, options and their names; the right distribution goes with them."""
    if source.random() < 0.4:
        judged = _reworded(judged, game, source)
    if judged.question.type == "choice":
        if source.random() < 0.2:
            judged = _some_options(judged, source)
        if source.random() < 0.25:
            judged = _renamed_options(judged, source)
        elif source.random() < 0.1:
            judged = _with_options(judged, [Option(o.id) for o in judged.question.options])
    elif judged.question.type == "noul" and source.random() < 0.2:
        told = source.choice(_YES_NO)
        options = [
            Option(o.id, text) for o, text in zip(judged.question.options, told, strict=True)
        ]
        judged = _with_options(judged, options)
    return judged


def with_other_ids(questions: list[Judged], source: random.Random) -> list[Judged]:
    """Name the questions of a record differently than the game does."""
    name, numbers = source.choice(_IDS), list(range(1, len(questions) + 1))
    if source.random() < 0.3:
        source.shuffle(numbers)
    return [
        msgspec.structs.replace(
            judged,
            question=msgspec.structs.replace(judged.question, id=f"{name}{number}"),
        )
        for judged, number in zip(questions, numbers, strict=True)
    ]


def _reworded(judged: Judged, game: str, source: random.Random) -> Judged:
    others = _MOVE[game] if judged.values is not None else _OTHER[judged.question.id]
    question = msgspec.structs.replace(judged.question, instructions=source.choice(others))
    return msgspec.structs.replace(judged, question=question)


def _some_options(judged: Judged, source: random.Random) -> Judged:
    """Keep two options or more; an answer that is right must be among them."""
    number = len(judged.question.options)
    if number <= 2:
        return judged
    kept = sorted(source.sample(range(number), source.randint(2, number)))
    options = tuple(judged.question.options[index] for index in kept)
    question = msgspec.structs.replace(judged.question, options=options)
    values = None if judged.values is None else tuple(judged.values[index] for index in kept)
    target = tuple(judged.target[index] for index in kept)
    if sum(target) > _SURE:
        target = tuple(each / sum(target) for each in target)
    elif values is not None:
        target = evenly(values)
    else:
        return judged
    return Judged(question=question, target=target, values=values)


def _renamed_options(judged: Judged, source: random.Random) -> Judged:
    """Call the options by letters or numbers; what they are called says what they stand for."""
    number = len(judged.question.options)
    names = list(string.ascii_uppercase[:number])
    if source.random() < 0.5:
        names = [str(index + 1) for index in range(number)]
    source.shuffle(names)
    options = [
        Option(name, f"{option.id}: {option.description}" if option.description else option.id)
        for name, option in zip(names, judged.question.options, strict=True)
    ]
    return _with_options(judged, options)


def _with_options(judged: Judged, options: list[Option]) -> Judged:
    question: Question = msgspec.structs.replace(judged.question, options=tuple(options))
    return msgspec.structs.replace(judged, question=question)
