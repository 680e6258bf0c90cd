"""Reuse through a real vLLM on the CPU in float32: what is kept equals what is read anew."""

from __future__ import annotations

import random
from collections import Counter
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.contract import Ask, DecisionReply
from engine.errors import RecordTooLong
from tests.support.asker import BAND, BLOCK, UNIT, Asker, distance, question, start, words
from tests.support.bundles import adapter_bundle, tuned_bundle
from tests.support.engine_core import preemptions, scheduler_of, set_short, set_step
from tests.support.ledger import keep_ledger, read_ledger

pytest.importorskip("vllm")

pytestmark = pytest.mark.vllm


@pytest.fixture(scope="module")
async def roomy(tmp_path_factory):
    """Reads any record in one step."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_ALLOW_INSECURE_SERIALIZATION", "1")
        bundle = adapter_bundle(tmp_path_factory.mktemp("roomy"))
        asker = await start(bundle, window=4096, max_batched_tokens=8192)
        yield asker
        await asker.backend.close()


@pytest.fixture(scope="module")
async def tight(tmp_path_factory):
    """Reads in small chunks with little to keep them in; every row goes into a ledger."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_ALLOW_INSECURE_SERIALIZATION", "1")
        asker = await start(
            tuned_bundle(tmp_path_factory.mktemp("tight")),
            window=1400,
            max_batched_tokens=256,
            max_seqs=6,
            kv_cache_memory=28 << 20,
        )
        await asker.backend.engine.reset_prefix_cache()  # the start read a record
        await asker.in_worker(keep_ledger)
        yield asker
        await asker.backend.close()


async def first_rows(asker: Asker, state: str, *, salt: str, at: int) -> list[list[float]]:
    """Give the features that a record sees right behind a token, whoever computed them."""

    def record(worker):
        reader, seen = worker._reader, worker.__dict__.setdefault("seen", [])
        stock = reader._score

        def score(features, readings):
            seen.extend([*each.state.tolist(), *each.rests[0].tolist()] for each in features)
            return stock(features, readings)

        reader._score = score

    def take(worker):
        del worker._reader._score
        return worker.__dict__.pop("seen")

    await asker.in_worker(record)
    await asker.ask(state, salt=salt, questions=(1,))
    [memory] = await asker.in_worker(take)
    return memory[at : at + 8]


LENGTHS = [UNIT * 5 + off for off in (-1, 0, 1)] + [
    BLOCK * blocks + off for blocks in (1, 2) for off in (-UNIT, -1, 0, 1, UNIT + 1)
]


@pytest.mark.parametrize("end", LENGTHS)
async def test_a_known_state_is_one_step_and_a_grown_one_two(roomy, end):
    state = words(end - roomy.start, end)
    salt = f"{end}"
    kept = end // UNIT * UNIT
    cold = await roomy.ask(state, salt=salt)
    assert cold.tokens_reused == 0
    assert cold.steps == 2
    assert cold.missed in ("first time", "other salt")

    known = await roomy.ask(state, salt=salt, questions=(1,))
    assert (known.steps, known.tokens_reused, known.missed) == (1, kept, "")
    assert distance(known, await roomy.cold(state, questions=(1,))) < BAND
    assert distance(cold, await roomy.ask(state, salt=salt)) < BAND

    grown_state = state + words(60, end + 1)
    grown = await roomy.ask(grown_state, salt=salt)
    assert (grown.steps, grown.tokens_reused, grown.missed) == (2, kept, "")
    assert distance(grown, await roomy.cold(grown_state)) < BAND
    again = await roomy.ask(grown_state, salt=salt, questions=(2,))
    assert (again.steps, again.tokens_reused) == (1, (end + 60) // UNIT * UNIT)
    # what was kept before is kept still
    assert (await roomy.ask(state, salt=salt, questions=(3,))).tokens_reused == kept


async def off_behind(asker: Asker, state: str, *, salt: str) -> float:
    """Give how far the first rows behind what is kept of a state are from those read anew."""
    at = (await asker.ask(state, salt=salt)).tokens_reused
    hit = await first_rows(asker, state, salt=salt, at=at)
    cold = await first_rows(asker, state, salt=f"anew {salt} {len(state)}", at=at)
    return max(
        abs(a - b) for x, y in zip(hit, cold, strict=True) for a, b in zip(x, y, strict=True)
    )


def forks_of(state: str, start: int, end: int) -> dict[str, str]:
    """Give states that begin as this one: grown, and cut just behind a border or before it."""
    forks = {"grown": state + words(40, 1)}
    for name, fork in (("behind", BLOCK + 7), ("before", BLOCK - 9)):
        if fork < end:
            same = "".join(f" {word}" for word in state.split()[: fork - start])
            forks[name] = same + words(400, fork)
    return forks


@pytest.mark.parametrize("end", [BLOCK - UNIT - 1, BLOCK + 3 * UNIT + 5, 2 * BLOCK + 1])
async def test_the_first_rows_behind_what_is_kept_are_right(roomy, end):
    """A wrong state of linear attention shows in these alone."""
    state = words(end - roomy.start, end)
    await roomy.ask(state, salt="rows")
    for name, fork in forks_of(state, roomy.start, end).items():
        assert await off_behind(roomy, fork, salt="rows") < BAND, (end, name)


async def off_behind_a_border(asker: Asker, salt: str) -> float:
    """Grow a state over a block's border from inside the block, then fork it behind the border."""
    start = asker.start
    inside = words(BLOCK + 4 * UNIT - start, 61)
    over = inside + words(BLOCK, 62)
    same = "".join(f" {word}" for word in over.split()[: 2 * BLOCK + 7 - start])
    for state in (inside, over):
        await asker.ask(state, salt=salt)
    return await off_behind(asker, same + words(30, 63), salt=salt)


async def test_a_step_over_a_border_keeps_no_state_that_is_not_the_borders(roomy):
    assert await off_behind_a_border(roomy, "guarded") < BAND


async def test_without_its_guard_it_would_and_the_first_rows_show_it(roomy):
    """vLLM itself registers every block that a step filled."""

    def drop(worker):
        coordinator = scheduler_of(worker).kv_cache_manager.coordinator
        worker.guarded = {
            manager: manager.__dict__.pop("cache_blocks")
            for manager in coordinator.single_type_managers
            if type(manager).__name__ == "MambaManager"
        }

    def restore(worker):
        for manager, guard in worker.__dict__.pop("guarded").items():
            manager.cache_blocks = guard

    await roomy.in_worker(drop)
    try:
        assert await off_behind_a_border(roomy, "unguarded") > 100 * BAND
    finally:
        await roomy.in_worker(restore)
        await roomy.backend.engine.reset_prefix_cache()


async def test_where_short_rests_are_read_at_once_a_grown_state_is_one_step(roomy):
    """As on a card, and only while the rest is short and nobody waits for the same state."""
    await roomy.in_worker(partial(set_short, tokens=250))
    try:
        state = words(900, 1)
        first = await roomy.ask(state)
        assert first.steps == 2
        kept = (roomy.start + 900) // UNIT * UNIT
        tail = first.tokens - roomy.start - 900
        found = []
        for version in range(1, 4):
            state += words(60, version)
            reply = await roomy.ask(state)
            assert distance(reply, await roomy.cold(state)) < BAND
            short = roomy.start + 900 + 60 * version + tail - kept <= 250
            found.append((reply.steps, reply.tokens_reused, reply.missed))
            assert found[-1] == (1 if short else 2, kept, "")
            if not short:
                kept = (roomy.start + 900 + 60 * version) // UNIT * UNIT
        assert {steps for steps, _, _ in found} == {1, 2}
        several = await roomy.ask(state + words(60, 9), questions=(0, 1, 2))
        assert several.steps >= 2
    finally:
        await roomy.in_worker(partial(set_short, tokens=0))


async def test_two_seats_and_the_next_version_share_the_public_part(roomy):
    public = words(500, 5)
    for version in range(6):
        for seat in (0, 1):
            state = public + f" You are {seat}." + words(30, seat)
            reply = await roomy.ask(state, public=len(public), salt="seats")
            kept = (roomy.start + 500 + 70 * version) // UNIT * UNIT
            before = (roomy.start + 500 + 70 * (version - 1)) // UNIT * UNIT
            if seat == 1:
                assert (reply.tokens_reused, reply.steps, reply.missed) == (kept, 1, "")
            elif version > 0:
                assert (reply.tokens_reused, reply.steps, reply.missed) == (before, 2, "")
            assert distance(reply, await roomy.cold(state, public=len(public))) < BAND
        public += words(70, 100 + version)


@pytest.mark.parametrize("form", ["independent", "joint"])
async def test_questions_on_a_private_part_read_it_once(roomy, form):
    public, private = words(400, 8), words(90, 9)
    state, options = public + private, {"public": len(public), "form": form}
    asked = (0, 1, 2, 3)
    first = await roomy.ask(state, questions=asked, salt=form, **options)
    end = roomy.start + 490
    questions = first.tokens - len(asked) * end if form == "independent" else first.tokens - end
    if form == "independent":
        assert first.tokens_read <= end + questions + len(asked) * UNIT
        assert first.steps <= 5
    known = await roomy.ask(state, questions=asked, salt=form, **options)
    if form == "independent":
        assert known.tokens_reused == len(asked) * (end // UNIT * UNIT)
        assert known.steps <= 2  # they may arrive during a step
        for number in asked:
            alone = await roomy.cold(state, questions=(number,))
            [answer] = [each for each in known.answers if each.id == f"q{number}"]
            [lonely] = alone.answers
            for a, b in zip(answer.logits or (), lonely.logits or (), strict=True):
                assert abs(a - b) < BAND
    assert distance(first, known) < BAND


async def test_decisions_that_come_together_read_their_state_once(roomy):
    state = words(700, 21)
    replies: dict[int, DecisionReply] = {}

    async def one(number: int) -> None:
        replies[number] = await roomy.ask(state, questions=(number,), salt="together")

    async with anyio.create_task_group() as group:
        for number in range(6):
            group.start_soon(one, number)
    end = roomy.start + 700
    own = sum(reply.tokens - end for reply in replies.values())
    assert sum(reply.tokens_read for reply in replies.values()) <= end + own + 6 * UNIT
    for number, reply in replies.items():
        assert distance(reply, await roomy.cold(state, questions=(number,))) < BAND


async def test_a_primed_state_is_one_step(roomy):
    from engine.contract import Prime

    for public, private in ((500, 0), (500, 90), (BLOCK - roomy.start, 0), (30, 800)):
        text, salt = words(public, public) + words(private, private), f"prime {public} {private}"
        end = len(words(public, public))
        prime = Prime(affinity="match", state=text, public_end=end, salt=salt)
        kept = (roomy.start + public + private) // UNIT * UNIT
        first = await roomy.backend.prime(prime)
        assert (first.tokens, first.tokens_read, first.steps) == (kept, kept, 2 if private else 1)
        reply = await roomy.ask(text, public=end, salt=salt)
        assert (reply.tokens_reused, reply.steps, reply.missed) == (kept, 1, "")
        assert distance(reply, await roomy.cold(text, public=end)) < BAND
        again = await roomy.backend.prime(prime)
        assert (again.tokens, again.tokens_read, again.steps) == (kept, 0, 0)


async def test_a_prime_is_overtaken_by_a_longer_state(roomy):
    from engine.contract import Prime, Primed

    backend, results = roomy.backend, dict[str, Primed]()
    unfinished = backend.engine.output_processor.get_num_unfinished_requests

    async def prime(name: str, state: str, affinity: str) -> None:
        results[name] = await backend.prime(Prime(affinity=affinity, state=state, salt="overtaken"))

    async def until(count: int) -> None:
        while unfinished() != count:
            await anyio.lowlevel.checkpoint()

    state = words(300, 77)
    await backend.engine.pause_generation(mode="keep", clear_cache=False)
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(prime, "first", state, "test")
            group.start_soon(prime, "other", words(200, 78), "another match")
            await until(2)
            group.start_soon(prime, "newer", state + words(50, 1), "test")
            while "first" not in results:
                await anyio.lowlevel.checkpoint()
            await until(2)
            longer = state + words(90, 2)
            group.start_soon(partial(roomy.ask, longer, salt="overtaken"))  # of affinity "test"
            while "newer" not in results:
                await anyio.lowlevel.checkpoint()
            await backend.engine.resume_generation()
    assert {name: result.overtaken for name, result in results.items()} == {
        "first": True,
        "newer": True,
        "other": False,
    }
    assert unfinished() == 0
    with pytest.raises(RecordTooLong, match="no question fits"):
        await backend.prime(Prime(affinity="a", state=words(5000, 1)))
    assert (await backend.prime(Prime(affinity="a", state=state, salt="overtaken"))).tokens


async def test_why_less_was_reused_is_said(roomy):
    state = words(600, 31)
    assert (await roomy.ask(state, salt="why")).missed == "first time"
    assert (await roomy.ask(state, salt="other")).missed == "other salt"
    [record] = roomy.backend._encoder.encode(
        Ask(state=state, public_end=len(state), fields=(question(0),)), window=4096
    )
    outcomes = await roomy.backend._read_all("plain", [record], None, salt="why")
    assert (outcomes[0].missed, outcomes[0].reused) == ("other adapter", 0)
    letters = len(words(200, 31))
    changed = state[:letters] + " door" + state[letters:]
    reply = await roomy.ask(changed, salt="why")
    assert reply.missed == f"text changed at token {roomy.start + 200}"
    await roomy.backend.engine.reset_prefix_cache()
    assert (await roomy.ask(state, salt="why")).missed == "evicted"
    assert (await roomy.ask(state, salt="why")).missed == ""


async def test_memory_of_features_is_slots_times_width_times_bytes(roomy):
    def sizes(worker):
        pool, config = worker._reader.pool, worker.model_runner.kv_cache_config
        caches = sum(tensor.size for tensor in config.kv_cache_tensors)
        return pool.nbytes, config.num_blocks, pool.block_size, caches

    features, blocks, block, caches = await roomy.in_worker(sizes)
    print(f"features {features} bytes beside {caches} bytes of keys, values and states")
    assert features == blocks * block * 64 * 4
    assert features + caches <= 256 << 20


async def test_a_mixture_with_evictions_reads_no_feature_of_another(tight):
    """Chunks, growth, forks, chats, aborts and preemptions with room for a few records only."""
    pick = random.Random(7)
    trunks = [words(1000, 50 + index) for index in range(3)]
    replies: list[tuple[str, int, DecisionReply]] = []

    async def decide(state: str, number: int) -> None:
        replies.append((state, number, await tight.ask(state, questions=(number,))))

    async def give_up(state: str, number: int) -> None:
        with anyio.move_on_after(pick.random() * 0.2):
            await decide(state, number)

    for turn in range(12):
        async with anyio.create_task_group() as group:
            for index in range(5):
                trunk = pick.choice(trunks)[: pick.randrange(60, 900) * 3]
                fork = words(pick.choice((0, 3, 40)), pick.randrange(3))
                doing = give_up if pick.random() < 0.15 else decide
                group.start_soon(doing, trunk + fork, pick.randrange(4))
                if index == 0:
                    group.start_soon(
                        tight.chat, f"chat {turn}", trunks[0][: pick.randrange(30, 900)]
                    )
        if turn == 7:
            await tight.backend.engine.reset_prefix_cache()
    counts = await tight.in_worker(read_ledger)
    print(counts, sum(reply.tokens_reused > 64 for _, _, reply in replies), "with reuse")
    assert counts["wrong"] == 0
    assert counts["copies"] > 0
    for state, number, reply in pick.sample(replies, 20):
        cold = await tight.cold(state, questions=(number,))
        assert distance(reply, cold) < BAND


async def test_an_engine_with_foreign_keys_and_values_is_refused():
    from types import SimpleNamespace

    from engine.errors import EngineFailed
    from engine.llm.features import refuse_foreign_cache

    def config(**settings: Any) -> Any:
        parts: dict[str, Any] = {
            "kv_transfer_config": None,
            "kv_offloading_size": None,
            "kv_sharing_fast_prefill": False,
            "decode_context_parallel_size": 1,
            "prefill_context_parallel_size": 1,
        } | settings
        part = SimpleNamespace(**parts)
        return SimpleNamespace(
            kv_transfer_config=part.kv_transfer_config, cache_config=part, parallel_config=part
        )

    refuse_foreign_cache(config())
    for name in ("kv_transfer_config", "kv_offloading_size", "kv_sharing_fast_prefill"):
        with pytest.raises(EngineFailed, match=name):
            refuse_foreign_cache(config(**{name: 1}))
    with pytest.raises(EngineFailed, match="decode_context"):
        refuse_foreign_cache(config(decode_context_parallel_size=2))


class Case(msgspec.Struct):
    """One combination of what may matter to a decision.

    Attributes:
        end: Tokens of the state, with what all records begin with.
        public: Of these the part that others share.
        growth: Tokens added to it.
        step: Tokens of an engine step.
        asked: The questions, by number.
        form: "independent" or "joint".
        beside: What runs in the same steps: chats, other states, forks of this one.
        seed: Of the texts.
    """

    end: int
    public: int
    growth: int
    step: int
    asked: list[int]
    form: str
    beside: list[str]
    seed: int


def cases(longest: int) -> st.SearchStrategy[Case]:
    borders = [border for border in (5 * UNIT, BLOCK, 2 * BLOCK) if border + UNIT < longest]
    return st.builds(
        Case,
        end=st.one_of(
            st.integers(60, longest),
            st.builds(int.__add__, st.sampled_from(borders), st.integers(-UNIT - 1, UNIT + 1)),
        ),
        public=st.integers(0, longest),
        growth=st.integers(0, 120),
        step=st.sampled_from((64, 100, 256, 1024)),
        asked=st.lists(st.integers(0, 5), min_size=1, max_size=2, unique=True),
        form=st.sampled_from(("independent", "joint")),
        beside=st.lists(st.sampled_from(("chat", "other", "fork", "same")), max_size=2),
        seed=st.integers(0, 10**6),
    )


async def check_case(asker: Asker, case: Case, counts: Counter[str]) -> None:
    """See that a decision is the same cold, kept, grown, preempted and in company."""
    counts["cases"] += 1
    name = f"case {asker.asked}"
    state = words(case.end - asker.start, case.seed)
    grown = state + words(case.growth, case.seed + 1)
    public = len(state) * min(case.public, case.end) // case.end
    options: Any = {"questions": case.asked, "form": case.form, "public": public}
    alone = await asker.cold(state, **options)
    grown_alone = await asker.cold(grown, **options)
    await asker.in_worker(partial(set_step, tokens=case.step))
    found: dict[str, tuple[DecisionReply, DecisionReply]] = {}

    async def ask(kind: str, text: str, truth: DecisionReply, salt: str) -> None:
        reply = await asker.ask(text, salt=salt, **options)
        counts["reused"] += reply.tokens_reused > 0
        found[kind] = reply, truth

    async def accompany(index: int, kind: str) -> None:
        salt = f"{name} kept"
        if kind == "chat":
            said = state or words(9, index)  # a state may be empty, a prompt may not
            await asker.chat(f"{name} {index}", said[: 300 * (index + 1)], 6)
        elif kind == "other":
            await asker.ask(words(150 + index, case.seed + 7), questions=(4,), salt=salt)
        else:
            text = state if kind == "same" else state[: len(state) // 2] + words(50, index)
            await asker.ask(text, questions=(5,), salt=salt)

    async with anyio.create_task_group() as group:
        group.start_soon(ask, "cold in company", state, alone, f"{name} kept")
        for index, kind in enumerate(case.beside):
            group.start_soon(accompany, index, kind)
    async with anyio.create_task_group() as group:
        group.start_soon(ask, "kept", state, alone, f"{name} kept")
        group.start_soon(ask, "grown", grown, grown_alone, f"{name} kept")
        for index, kind in enumerate(case.beside):
            group.start_soon(accompany, 10 + index, kind)
    await asker.in_worker(partial(set_step, tokens=64))
    async with anyio.create_task_group() as group:
        group.start_soon(ask, "preempted", grown, grown_alone, f"{name} preempted")
        while "preempted" not in found:
            await asker.backend.engine.reset_prefix_cache(reset_running_requests=True)
            if await asker.in_worker(preemptions):
                counts["preempted"] += 1
                break
    await asker.in_worker(partial(set_step, tokens=None))
    for kind, (reply, truth) in found.items():
        off = distance(reply, truth)
        counts["furthest, in 1e-9"] = max(counts["furthest, in 1e-9"], round(off * 1e9))
        assert off < BAND, (kind, off)


@pytest.fixture(scope="module")
def counts():
    """What happened in the random cases; it must have been enough to mean something."""
    counts: Counter[str] = Counter()
    yield counts
    print(dict(counts))
    if counts["cases"]:
        assert counts["preempted"] > counts["cases"] // 2
        assert counts["reused"] > counts["cases"]


def cases_of(number: int) -> Any:
    return settings(
        max_examples=number, deadline=None, database=None, suppress_health_check=[*HealthCheck]
    )


@pytest.mark.timeout(900)
@cases_of(24)
@given(case=cases(longest=440))
async def test_a_decision_is_the_same_however_it_is_read(roomy, counts, case):
    await check_case(roomy, case, counts)


@pytest.mark.timeout(900)
@cases_of(12)
@given(case=cases(longest=440))
async def test_so_it_is_with_tuned_weights_and_little_room(tight, counts, case):
    await check_case(tight, case, counts)


# in pieces, each with `--hypothesis-seed` if it is run alone, so that a long run can be taken up
@pytest.mark.long
@pytest.mark.parametrize("piece", range(14))
@cases_of(100)
@given(case=cases(longest=900))
async def test_a_decision_is_the_same_in_many_cases(roomy, counts, piece, case):
    await check_case(roomy, case, counts)


@pytest.mark.long
@pytest.mark.parametrize("piece", range(6))
@cases_of(100)
@given(case=cases(longest=900))
async def test_so_it_is_in_many_cases_with_little_room(tight, counts, piece, case):
    await check_case(tight, case, counts)


@pytest.mark.long
@pytest.mark.parametrize("border", [5 * UNIT, BLOCK, 2 * BLOCK])
async def test_at_every_length_around_a_border(roomy, tight, counts, border):
    for off in range(-UNIT - 1, UNIT + 2):
        for form, asker in (("independent", roomy), ("joint", tight), ("independent", tight)):
            case = Case(
                end=border + off,
                public=border + off,
                growth=60,
                step=256,
                asked=[1, 2],
                form=form,
                beside=["chat", "same"],
                seed=off,
            )
            await check_case(asker, case, counts)
