"""From judged positions to records, rendered and tokenized as a worker does it."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
import numpy as np

from engine.contract import Ask
from engine.records import ask_from_questions
from engine.tokens import Encoder, Record
from games.base import CHANCE
from games.questions import Question
from games.registry import load_game
from games.solved import Judged, Position, connect_four, expedition, kuhn_poker, tictactoe
from tools.nano.dataset import FieldData, RecordData, key_bits
from tools.nano.wording import vary, with_other_ids

WINDOW: Final = 32768
GAMES: Final = (tictactoe.GAME, kuhn_poker.GAME, connect_four.GAME, expedition.GAME)
KINDS: Final = """
    move action step wins_now threat drawn corners result marks turn facing_bet higher king rank
    card centre outlook height highest energy_low rations half_way hope energy land
""".split()  # noqa: SIM905 - a list would take a line for each
_HEADINGS: Final = {tictactoe.GAME: "MOVES\n", connect_four.GAME: "PLAY\n"}
_SHORT, _LONG, _JOINT = 0.3, 0.05, 0.6  # shares of records
_MOST: Final = 8  # questions beside the one for the action


def learned(position: Position, encoder: Encoder, source: random.Random) -> Iterator[RecordData]:
    """Give the records to learn from one position: one question, or several in one record."""
    state = _state(position, source)
    several = position.judged[1:]
    if source.random() < _JOINT:
        number = source.randint(1, min(_MOST, len(several)))
        chosen = [*source.sample(several, number), position.judged[0]]
        source.shuffle(chosen)
        kinds = [each.question.id for each in chosen]
        varied = [vary(each, position.game, source) for each in chosen]
        if source.random() < 0.5:
            varied = with_other_ids(varied, source)
        yield record_of(position, state, varied, kinds, encoder, source, joint=True)
        return
    first = source.random() < 0.7
    chosen = [position.judged[0] if first else source.choice(several)]
    varied = [vary(each, position.game, source) for each in chosen]
    yield record_of(position, state, varied, [chosen[0].question.id], encoder, source, joint=False)


def tested(position: Position, encoder: Encoder, source: random.Random) -> Iterator[RecordData]:
    """Give the records that a position is tested with: as a match asks, one question each."""
    for judged in (position.judged[0], source.choice(position.judged[1:])):
        kinds = [judged.question.id]
        state = position.view.text
        yield record_of(position, state, [judged], kinds, encoder, source, joint=False)


def record_of(
    position: Position,
    state: str,
    questions: Sequence[Judged],
    kinds: Sequence[str],
    encoder: Encoder,
    source: random.Random,
    *,
    joint: bool,
) -> RecordData:
    """Make a record and say what is right in it.

    Args:
        position: Where the questions are asked.
        state: Its text.
        questions: As they are asked.
        kinds: Which of the game's questions each of them is.
        encoder: Of the model's tokenizer.
        source: Draws the answers that a language model reads, by their probability.
        joint: All in one record with their ids; else the only question has none.
    """
    ask = ask_from_questions(
        state=state,
        questions=[judged.question for judged in questions],
        form="joint" if joint else "independent",
        record="release" if joint else "neutral",
    )
    [record] = encoder.encode(ask, window=WINDOW)
    return RecordData(
        input_ids=np.array(record.input_ids, dtype=np.uint16),
        answer=np.array(encoder.ids(_answer(questions, ask, source)), dtype=np.uint16),
        game=GAMES.index(position.game),
        key=key_bits(position.key),
        fields=_fields(questions, kinds, ask, record),
    )


def _fields(
    questions: Sequence[Judged], kinds: Sequence[str], ask: Ask, record: Record
) -> list[FieldData]:
    found: list[FieldData] = []
    for judged, kind, field, placed in zip(
        questions, kinds, ask.fields, record.fields, strict=True
    ):
        ids = [option.id for option in judged.question.options]
        order = [ids.index(each) for each in field.option_ids]
        values = judged.values or (float("nan"),) * len(ids)
        found.append(
            FieldData(
                kind=KINDS.index(kind),
                type=placed.type,
                question=placed.question_span,
                options=np.array(placed.option_spans, dtype=np.int32),
                target=np.array([judged.target[each] for each in order], dtype=np.float32),
                values=np.array([values[each] for each in order], dtype=np.float32),
            )
        )
    return found


def _answer(questions: Sequence[Judged], ask: Ask, source: random.Random) -> str:
    lines: list[str] = []
    for judged, field in zip(questions, ask.fields, strict=True):
        question: Question = judged.question
        [option] = source.choices(question.options, judged.target)
        name = field.id if ask.form == "joint" else "q"
        lines.append(f"\n{name}: {option.id}")
    return "".join(lines) + "<|im_end|>"


def _state(position: Position, source: random.Random) -> str:
    """Give the state as a seat sees it, or shorter, or behind other matches."""
    view, heading = position.view, _HEADINGS.get(position.game)
    if heading is None:
        return view.text
    if source.random() < _SHORT:
        return view.private.lstrip("\n")
    if source.random() < _LONG:
        number = int(2 ** source.uniform(1, 6))
        earlier = [_match(position.game, source) for _ in range(number)]
        view = msgspec.structs.replace(view, public="\n".join([*earlier, view.public]))
    return view.text


def _match(game: str, source: random.Random) -> str:
    """Play a match at random and give its turns."""
    state = load_game(game).start(seats=2, seed=0)
    start = len(state.view(0).public)
    while state.actor is not None:
        some = state.outcomes() if state.actor == CHANCE else state.options()
        state = state.apply(source.choice(some).id)
    return "EARLIER MATCH\n" + state.view(0).public[start:]
