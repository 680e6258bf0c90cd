from __future__ import annotations

import re

import pytest

from engine.contract import DecisionReply, DecisionRequest, Field, FieldAnswer
from engine.mock import MockBackend, parse_mock
from games.questions import Option, choice
from games.solved import Judged, connect_four, expedition, kuhn_poker, tictactoe
from games.solved.judged import judged_noul
from games.tictactoe import CELLS, MARKS, TicTacToeState
from runtime.exam.asking import Asker
from runtime.exam.exam import Options, difference, positions_of, run
from runtime.exam.invariance import changes
from runtime.exam.marks import Marks, interval
from runtime.exam.matches import kuhn_policy


class Perfect:
    """Answers the action questions of two games from what the record says, and no other."""

    async def decide(self, request: DecisionRequest) -> DecisionReply:
        answers = tuple(
            FieldAnswer(
                id=field.id,
                option_ids=field.option_ids,
                probabilities=self._probabilities(request.ask.state, field),
            )
            for field in request.ask.fields
        )
        return DecisionReply(id=request.id, attempt=1, answers=answers)

    def _probabilities(self, state: str, field: Field) -> tuple[float, ...]:
        ids = field.option_ids
        if set(ids) <= set(CELLS) and "BOARD\n" in state:
            board = state.split("BOARD\n")[1]
            cells = board[:17].replace(" ", "").replace("\n", "")
            seat = MARKS.index(board.split("You play ")[1][0])
            judged = tictactoe.position(TicTacToeState(cells, seat, "")).judged[0]
            by_id = dict(zip((o.id for o in judged.question.options), judged.target, strict=True))
            return tuple(by_id[each] for each in ids)
        if set(ids) == {"bet", "pass"}:
            card = kuhn_poker.CARDS.index(re.findall(r"Your card is the (\w+)", state)[0])
            bets = "".join(made[0] for made in re.findall(r"Player \d: (\w+)", state))
            bet = kuhn_poker.equilibrium(card, bets)
            return tuple(bet if each == "bet" else 1 - bet for each in ids)
        return (1 / len(ids),) * len(ids)


def quiet(what: str, done: int, total: int) -> None:
    assert done <= total
    assert what


async def test_perfect_play_gets_the_best_marks_there_are():
    options = Options(games=(tictactoe.GAME, kuhn_poker.GAME), positions=40, matches=12)
    found = await run(Perfect(), options, quiet)
    [moves] = [row for row in found.questions if row.question == "tictactoe: move"]
    assert (moves.tests, moves.right, moves.loss) == (40, 1.0, 0.0)
    assert moves.brier == pytest.approx(0)
    assert moves.ece == pytest.approx(0)
    by = {(row.against, row.seat): row for row in found.matches}
    assert len(by) == 4
    assert by["random", "first"].won >= 10
    assert all(row.lost == 0 for row in by.values())
    assert all(by["perfect", seat].drawn == 12 for seat in ("first", "second"))
    assert found.kuhn is not None
    assert found.kuhn.exploitability == pytest.approx(0, abs=1e-9)
    assert found.kuhn.bets["Jack p"] == pytest.approx(1 / 3)
    again = await run(Perfect(), options, quiet)
    assert again == found
    assert difference(found, again).same == 1.0


async def test_every_game_is_examined_with_any_model():
    pytest.importorskip("pyspiel", reason="OpenSpiel is not installed")
    model = MockBackend(parse_mock("mock:seed=1,window=40000"))
    options = Options(
        games=(connect_four.GAME, expedition.GAME), positions=3, matches=2, maps=1, rules="short"
    )
    found = await run(model, options, quiet)
    assert {row.game for row in found.matches} == {connect_four.GAME}
    assert {row.against for row in found.matches} == {"random", "two plies", "searcher"}
    assert all(row.matches == row.won + row.drawn + row.lost == 2 for row in found.matches)
    [crossed] = found.journeys
    assert 0 <= crossed.share < 1
    assert crossed.best > crossed.chance
    assert {row.type for row in found.questions} == {"choice", "score", "noul"}


def test_only_positions_for_tests_are_asked_about():
    options = Options(positions=30, rules="short")
    assert all(each.test for each in positions_of(tictactoe.GAME, options))
    keys = [each.key for each in positions_of(kuhn_poker.GAME, options)]
    assert len(set(keys)) == len(keys) == 12


async def test_the_order_of_a_requests_options_changes_nothing():
    model = MockBackend(parse_mock("mock:seed=1"))
    positions = list(positions_of(tictactoe.GAME, Options(positions=4)))
    found = {each.what: each for each in await changes(Asker(model), positions)}
    assert found["options reversed in the request"].largest == 0
    assert found["other questions beside"].largest == 0
    # the mock answers by the text of the question, so another order is another answer
    assert found["options reversed in the record"].largest > 0


async def test_a_policy_is_asked_for_in_every_information_set():
    policy = await kuhn_policy(Asker(Perfect()))
    assert policy == pytest.approx(
        {each: kuhn_poker.equilibrium(*each) for each in kuhn_poker.information_sets()}
    )


def test_marks_are_those_of_hand_made_answers():
    options = (Option("a"), Option("b"))
    question = choice("q", "?", options)
    judged = Judged(question=question, target=(0.75, 0.25), values=(1.0, 0.4))
    marks = Marks()
    marks.add(judged, (0.75, 0.25))
    marks.add(judged, (0.25, 0.75))
    row = marks.row("q", judged)
    assert row.right == 0.5
    assert row.loss == pytest.approx(0.3)
    assert row.brier == pytest.approx((0 + 0.5) / 2)
    # sure of 0.75 twice, right by 0.75 and by 0.25
    assert row.ece == pytest.approx(0.25)
    statement = judged_noul("n", "?", 1.0)
    marks = Marks()
    marks.add(statement, (0.9, 0.1))
    assert marks.row("n", statement).brier == pytest.approx(0.01)
    assert marks.row("n", statement).loss is None


def test_intervals_are_wilsons():
    # 81 of 263, as in R. G. Newcombe, Statistics in Medicine 17 (1998), table I
    low, high = interval(81, 263)
    assert (round(low, 4), round(high, 4)) == (0.2553, 0.3662)
    assert interval(0, 0) == (0.0, 1.0)
