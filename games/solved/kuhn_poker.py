"""Kuhn poker, solved: an equilibrium, and how much any policy can be exploited.

The equilibria of player 0 are a family in the probability `a` (0 to 1/3) of betting the Jack; the
value of the game for player 0 is -1/18 (Kuhn 1950).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from typing import Final

from games.kuhn_poker import BET, CARDS, ENDINGS, PASS, SEATS, KuhnState
from games.questions import Option
from games.solved.judged import Judged, Position, judged_choice, judged_noul, judged_score

GAME = "kuhn_poker"
VALUE: Final = -1 / 18
"""What player 0 gets on average when both play an equilibrium."""

_JACK_BETS: Final = 1 / 6
_BETS: Final[dict[tuple[int, str], float]] = {
    (0, ""): _JACK_BETS,
    (1, ""): 0.0,
    (2, ""): 3 * _JACK_BETS,
    (0, "pb"): 0.0,
    (1, "pb"): _JACK_BETS + 1 / 3,
    (2, "pb"): 1.0,
    (0, "p"): 1 / 3,
    (1, "p"): 0.0,
    (2, "p"): 1.0,
    (0, "b"): 0.0,
    (1, "b"): 1 / 3,
    (2, "b"): 1.0,
}
"""How often a card bets, after the betting so far."""

Policy = Callable[[int, str], float]
"""The probability that a card bets after the betting so far."""

_RANKS = ("the lowest of the deck", "neither the lowest nor the highest", "the highest of the deck")
_OPTIONS = tuple(Option(card, f"the {card}") for card in CARDS)


def equilibrium(card: int, bets: str) -> float:
    """Give the probability of betting; see `Policy`."""
    return _BETS[card, bets]


def information_sets() -> list[tuple[int, str]]:
    """Give all that a seat to act can know: its card and the betting."""
    return list(_BETS)


def expected(first: Policy, second: Policy) -> float:
    """Give what player 0 gets on average when each follows a policy."""
    deals = list(permutations(range(len(CARDS)), SEATS))
    return sum(_follow(KuhnState(deal, "", ""), (first, second)) for deal in deals) / len(deals)


def _follow(state: KuhnState, policies: tuple[Policy, Policy]) -> float:
    seat = state.actor
    if seat is None:
        return state.returns()[0]
    bets = policies[seat](state.cards[seat], state.bets)
    return sum(
        share * _follow(state.apply(action), policies)
        for action, share in ((BET, bets), (PASS, 1 - bets))
        if share
    )


def best_response(policy: Policy, seat: int) -> float:
    """Give the most that `seat` can get on average against a policy of the other seat."""
    total = 0.0
    for card in range(len(CARDS)):
        others = {other: 1 / 6 for other in range(len(CARDS)) if other != card}
        total += _respond(card, others, "", seat, policy)
    return total


def _respond(card: int, others: dict[int, float], bets: str, seat: int, policy: Policy) -> float:
    """Weigh the opponent's cards by how often they come here, and take the better action."""
    if bets in ENDINGS:
        return sum(
            weight
            * KuhnState((card, other) if seat == 0 else (other, card), bets, "").returns()[seat]
            for other, weight in others.items()
        )
    if len(bets) % SEATS == seat:
        return max(_respond(card, others, bets + action, seat, policy) for action in "pb")
    total = 0.0
    for action in "pb":
        share = {
            other: weight * (policy(other, bets) if action == "b" else 1 - policy(other, bets))
            for other, weight in others.items()
        }
        total += _respond(card, share, bets + action, seat, policy)
    return total


def exploitability(policy: Policy) -> float:
    """Give what best responses gain on a policy in chips a hand, the mean of both seats."""
    return (best_response(policy, 0) + best_response(policy, 1)) / 2


def key(state: KuhnState) -> str:
    """Name what the seat to act knows."""
    assert state.actor is not None
    return f"{GAME} {state.cards[state.actor]} {state.bets}"


def position(state: KuhnState) -> Position:
    """Judge a state in which a seat is to act.

    No position of this game is kept for tests: there are twelve, and none says what is right in
    another. What it is held against is the exploitability over the full tree.
    """
    assert state.actor is not None
    return Position(
        game=GAME,
        key=key(state),
        test=False,
        view=state.view(state.actor),
        judged=_judged(state, state.actor),
    )


def _judged(state: KuhnState, seat: int) -> tuple[Judged, ...]:
    [question] = state.questions()
    card, bets = state.cards[seat], equilibrium(state.cards[seat], state.bets)
    shares = {PASS: 1 - bets, BET: bets}
    facing = state.bets.endswith("b")
    return (
        Judged(
            question=question,
            target=tuple(shares[option.id] for option in question.options),
            values=_values(card, state.bets, seat),
        ),
        judged_noul("facing_bet", "Has the other player bet?", facing),
        judged_noul("higher", "Is the other player's card lower than yours?", card / 2),
        judged_noul("king", "Is your card the King?", card == len(CARDS) - 1),
        judged_score("rank", "How high is your card in this deck?", _RANKS, card),
        judged_choice("card", "Which card do you hold?", _OPTIONS, (CARDS[card],)),
    )


def _values(card: int, bets: str, seat: int) -> tuple[float, ...]:
    """Give what passing and betting get when the other seat, and this one later, play as above."""
    totals, weight = [0.0, 0.0], 0.0
    for other in range(len(CARDS)):
        if other == card:
            continue
        state = KuhnState((card, other) if seat == 0 else (other, card), "", "")
        reach = 1.0
        for made in bets:
            if state.actor != seat:
                share = equilibrium(other, state.bets)
                reach *= share if made == "b" else 1 - share
            state = state.apply(BET if made == "b" else PASS)
        weight += reach
        sign = 1 if seat == 0 else -1
        for index, action in enumerate((PASS, BET)):
            after = _follow(state.apply(action), (equilibrium, equilibrium))
            totals[index] += reach * sign * after
    return totals[0] / weight, totals[1] / weight
