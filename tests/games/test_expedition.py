from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from games import expedition
from games.base import CHANCE
from games.errors import BadGameParameters, IllegalAction
from games.expedition import ExpeditionState, rules

FULL, SHORT = expedition.load(), expedition.load(rules="short")


def journey(game: expedition.Expedition, seed: int, picks: list[int]) -> list[ExpeditionState]:
    """All states of a match whose every turn takes the option or outcome that `picks` names."""
    states = [game.start(seats=1, seed=seed)]
    while (state := states[-1]).actor is not None:
        names = labels(state)
        states.append(state.apply(names[picks[len(states) % len(picks)] % len(names)]))
    return states


def labels(state: ExpeditionState) -> list[str]:
    return [option.id for option in state.options()] or [some.id for some in state.outcomes()]


journeys = given(st.integers(0, 10**6), st.lists(st.integers(0, 5), min_size=1, max_size=80))


def test_a_decision_asks_for_one_of_six_steps_and_whether_energy_is_low():
    state = FULL.start(seats=1, seed=7)
    assert state.actor == CHANCE
    assert state.questions() == state.options() == ()
    state = state.apply(state.outcomes()[0].id)
    assert state.actor == 0
    step, low = state.questions()
    assert step.type == "choice"
    assert step.options == state.options()
    assert [option.id for option in step.options] == list(rules.STEPS)
    assert all(option.description for option in step.options)
    assert low.type == "noul"
    assert FULL.facts.max_options == len(step.options) == 6


@settings(max_examples=30, deadline=None)
@journeys
def test_every_turn_adds_a_line_and_five_turns_lie_between_decisions(seed: int, picks: list[int]):
    states = journey(FULL, seed, picks)
    decisions = [turn for turn, state in enumerate(states) if state.actor == 0]
    assert all(later - earlier == 5 for earlier, later in pairwise(decisions))
    assert len(states) - 1 <= (FULL.facts.max_turns or 0)
    for before, after in pairwise(states):
        old, new = before.view(0), after.view(0)
        assert new.public.startswith(old.public)
        assert new.public[len(old.public) :].count("\n") == 1
        assert new.epoch == old.epoch == 0


@settings(max_examples=30, deadline=None)
@journeys
def test_energy_points_and_ends_keep_within_the_rules(seed: int, picks: list[int]):
    states = journey(FULL, seed, picks)
    for state in states:
        situation, measures = state.situation, state.world.rules.measures
        assert 0 <= situation.energy <= measures.energy_full
        assert 0 <= situation.rations <= measures.rations_most
        assert state.energy_low == (situation.energy <= measures.energy_low)
        assert 0.0 <= state.returns()[0] <= 1.0
        assert (state.actor is None) == (situation.phase == "over")
    end = states[-1]
    arrived = end.world.column(end.situation.cell) == end.world.last_column
    assert end.situation.energy == 0 or arrived or end.situation.day == end.world.days
    assert (end.returns()[0] == 1.0) == (arrived and end.situation.energy > 0)


@settings(max_examples=20, deadline=None)
@journeys
def test_both_lengths_of_the_rules_play_identically(seed: int, picks: list[int]):
    for full, short in zip(journey(FULL, seed, picks), journey(SHORT, seed, picks), strict=True):
        assert full.encode() == short.encode()
        assert full.questions() == short.questions()
        assert full.view(0).private == short.view(0).private
        assert full.journal == short.journal


def test_what_is_shown_suffices_to_know_the_state():
    seen: dict[tuple[str, str], bytes] = {}
    for seed in range(20):
        for state in journey(SHORT, seed, [3, 1, 4, 1, 5, 2, 0]):
            shown = state.rebase().view(0)
            assert seen.setdefault((shown.public, shown.private), state.encode()) == state.encode()
    assert len(set(seen.values())) == len(seen)


def test_a_rebased_state_is_the_same_with_a_shorter_text():
    states = journey(FULL, 3, [4])
    start = states[0].view(0).public
    for state, after in pairwise(states):
        rebased = state.rebase()
        assert rebased.encode() == state.encode()
        assert rebased.questions() == state.questions()
        assert rebased.outcomes() == state.outcomes()
        assert rebased.view(0).epoch == state.view(0).epoch + 1
        assert rebased.view(0).private == state.view(0).private
        assert rebased.view(0).public.startswith(start)
        assert len(rebased.view(0).public) < len(start) + 300
        line = after.journal.removeprefix(state.journal)
        label = next(a for a in labels(state) if state.apply(a).journal == after.journal)
        assert rebased.apply(label).journal == rebased.journal + line
    assert len(states[-2].view(0).public) > len(start) + 300


def test_maps_share_the_rules_and_differ_after_them():
    texts = [FULL.start(seats=1, seed=seed).view(0).public for seed in range(8)]
    assert len(set(texts)) == 8
    rules_end = texts[0].rindex("# This journey")
    assert len({text[:rules_end] for text in texts}) == 1


def test_a_seed_gives_the_same_map_for_ever():
    world = expedition.load(size="tiny").start(seats=1, seed=0).world
    assert world.season.name == "winter"
    assert [item.name for item in world.kit] == ["fur coat", "oilskin", "staff"]
    assert [terrain.name for terrain in world.land] == [
        *("old forest", "lakeshore", "birchwood"),
        *("thicket", "river", "lakeshore"),
    ]


def test_an_illegal_action_changes_nothing():
    state = FULL.start(seats=1, seed=1)
    before = msgspec.json.encode(state.situation), state.view(0)
    with pytest.raises(IllegalAction, match="'north' is not a legal action here"):
        state.apply("north")
    assert (msgspec.json.encode(state.situation), state.view(0)) == before
    end = journey(FULL, 1, [0])[-1]
    with pytest.raises(IllegalAction, match="legal: none"):
        end.apply("rest")


@pytest.mark.parametrize(
    "parameters", [{"rules": "long"}, {"size": "huge"}, {"days": "3"}, {"rules": ""}]
)
def test_other_parameters_are_refused_with_those_that_exist(parameters: dict[str, str]):
    with pytest.raises(BadGameParameters, match=r"takes rules=full\|short, size=tiny\|small"):
        expedition.load(**parameters)


def test_one_seat():
    with pytest.raises(BadGameParameters, match="1 seat, not 2"):
        FULL.start(seats=2, seed=0)


def test_the_id_names_what_was_asked_for():
    assert FULL.facts.id == "expedition"
    assert expedition.load(rules="full", size="standard").facts == FULL.facts
    assert SHORT.facts.id == "expedition(rules=short)"
    assert (
        expedition.load(size="tiny", rules="short").facts.id == "expedition(rules=short,size=tiny)"
    )
