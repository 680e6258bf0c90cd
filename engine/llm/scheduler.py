"""vLLM's scheduler, for records: each token is read once, and answers leave with the outputs.

Chat runs beside them: each side has its share of every step.

vLLM builds this class by name in the engine process: `scheduler_cls`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import msgspec
from vllm.platforms import current_platform
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.request_queue import RequestQueue
from vllm.v1.engine import EngineCoreOutput, EngineCoreOutputs, FinishReason
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus

from engine.llm.missed import History, Seen
from engine.llm.plan import Outcome, ReadPlan, find_plan
from engine.llm.settings import KEY, EngineSettings
from engine.llm.shares import Shares, Side
from engine.llm.snapshots import EndsAt, Stops, chat_stops, enter_at_stops, record_stops, watch

if TYPE_CHECKING or current_platform.is_cpu():
    from vllm.v1.core.sched.scheduler import Scheduler as Base
else:
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler as Base


_KNOWN = Outcome(logits=[], first_step=1, last_step=0, missed="")
"""Of a prime whose state was read before: no step was made for it."""

_RUNNING: tuple[Side, ...] = ("chat", "decision", "prime")
_TURNS: tuple[tuple[Side, ...], ...] = (("decision", "chat", "prime"), _RUNNING)

_NEVER = 1 << 62

_BETWEEN_RECORDS_S = 0.005
"""From one record of a decision to the next; for long ones that is what their tokens take."""


class Course(msgspec.Struct):
    """How a record fares.

    Attributes:
        plan: As the request brought it.
        state: Names adapter, salt and all tokens of the state's units; None if it has no unit.
        first_step: Number of the step that first read a part of it; 0 before.
        reused: Tokens found at the last look.
        missed: Why no more were.
        patience: Until when it waits for the other records of its decision, monotonic seconds.
        left_out: A step was made without it, though it could have been read.
        seen: What later records are told of it; None before its first step.
    """

    plan: ReadPlan
    state: bytes | None
    first_step: int = 0
    reused: int = 0
    missed: str = ""
    patience: float = 0.0
    left_out: bool = False
    seen: Seen | None = None


class DecisionScheduler(Base):
    """Stops records where others go on, lets one read a state for all that wait for it.

    The priority of a decision's records is its deadline: the earlier one is read first. One that
    was left out of a step has a place in the next, whoever else there is: see `_choose_ahead`.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._courses: dict[str, Course] = {}
        self._stops: dict[str, Stops] = {}
        self._on_state: dict[bytes, set[str]] = {}
        self._history = History(self.hash_block_size)
        settings = self.vllm_config.additional_config
        assert isinstance(settings, EngineSettings)
        self._settings = settings
        self._shares = Shares(
            self.max_num_scheduled_tokens, self.max_num_running_reqs, settings.chat_share
        )
        self._aside: list[Request] = []
        self._ahead: dict[str, int] = {}
        self._kept = 0
        self._primed: dict[str, Request] = {}
        coordinator = self.kv_cache_manager.coordinator
        if self.use_eagle:
            enter_at_stops(coordinator)
        for manager in coordinator.single_type_managers:
            watch(manager, self._stops)

    def add_request(self, request: Request) -> None:
        """Take a request; note where it may be reused."""
        plan = find_plan(request.sampling_params)
        if plan is not None:
            stops = record_stops(plan, self.hash_block_size)
            units = stops.state // self.hash_block_size
            state = request.block_hashes[units - 1] if units else None
            self._stops[request.request_id] = stops
            self._courses[request.request_id] = Course(plan, state)
            if state is not None:
                self._on_state.setdefault(state, set()).add(request.request_id)
                self._gather(self._on_state[state], plan.siblings)
        elif request.request_id not in self.requests:
            self._stops[request.request_id] = chat_stops(
                request.num_prompt_tokens, self.hash_block_size
            )
        super().add_request(request)

    def _gather(self, on_state: set[str], siblings: int) -> None:
        """Let records of one decision begin together: they arrive one by one, milliseconds apart.

        A step of one question costs half of what one of eight does.
        """
        until = time.monotonic() + siblings * _BETWEEN_RECORDS_S
        for request_id in on_state:
            self._courses[request_id].patience = until if len(on_state) <= siblings else 0.0

    def schedule(self, *args: Any, **kwargs: Any) -> SchedulerOutput:
        """Choose what the next step reads; whoever waits for a state to be read is left out."""
        places = {
            request.request_id: place
            for place, request in enumerate([*self.skipped_waiting, *self.waiting])
        }
        self._end_known_primes()
        self._order(sorted(self.waiting, key=self._due))
        self._aside = self._held()
        self.waiting.remove_requests(self._aside)
        self._share()
        ready = [*self.running, *self.waiting]
        output = super().schedule(*args, **kwargs)
        if self._aside:  # what is new in the queue was preempted and comes first
            rest = [*self.waiting, *self._aside]
            self._order(sorted(rest, key=lambda each: places.get(each.request_id, -1)))
        for request_id in output.num_scheduled_tokens:
            course = self._courses.get(request_id)
            if course is not None and not course.first_step:
                course.first_step = self.current_step
                course.missed = self._why(self.requests[request_id], course)
        for request in ready:
            course = self._courses.get(request.request_id)
            if course is not None and request.request_id not in output.num_scheduled_tokens:
                course.left_out = True
        setattr(output, KEY, self.current_step)
        return output

    def _end_known_primes(self) -> None:
        """End the primes that found their state read; they are answered with the step's outputs."""
        known = [
            request.request_id
            for request in self.waiting
            if request.status == RequestStatus.WAITING
            and (course := self._courses.get(request.request_id)) is not None
            and not course.plan.fields
            and self._is_known(request, course)
        ]
        if known:
            ended = self.finish_requests(known, RequestStatus.FINISHED_STOPPED)
            self._primed |= {request.request_id: request for request in ended}

    def _order(self, requests: Sequence[Request]) -> None:
        """Let these wait in this order."""
        self.waiting.remove_requests(requests)
        for request in requests:
            self.waiting.add_request(request)

    def _share(self) -> None:
        """Divide the coming step among the sides, and see that none stands in another's way.

        vLLM ends its round at the first request that gets nothing, be it for want of memory. Which
        side is asked first therefore changes with every step. What runs keeps its tokens whatever
        the order, and the last is the first to lose its memory: that is a chat only among chats.
        """
        wanted: dict[Side, int] = {"chat": 0, "decision": 0, "prime": 0}
        free = dict.fromkeys(wanted, self.max_num_running_reqs - len(self.running))
        for request in chain(self.running, self.waiting, self.skipped_waiting):
            side = self._side(request)
            if request.status != RequestStatus.RUNNING:
                if not free[side]:
                    continue
                free[side] -= 1
            known = request.num_tokens_with_spec + request.num_output_placeholders
            wanted[side] += max(0, known - request.num_computed_tokens)
        self._shares.divide(wanted)
        self._ahead = self._choose_ahead(self._shares.left("decision"))
        self.running.sort(key=lambda request: self._place(request, _RUNNING))
        order = _TURNS[self.current_step % 2]
        self._order(sorted(self.waiting, key=lambda request: self._place(request, order)))

    def _place(self, request: Request, order: Sequence[Side]) -> tuple[int, bool, int]:
        side, ahead = self._side(request), request.request_id in self._ahead
        return order.index(side), not ahead, self._due(request)

    def _due(self, request: Request) -> int:
        """Give until when a request is to be answered, in an order; chats and primes never are.

        What is under way is as urgent as the most urgent one that waits for its state.
        """
        course = self._courses.get(request.request_id)
        if course is None:
            return _NEVER
        names = {request.request_id}
        if request.status == RequestStatus.RUNNING and course.state is not None:
            names = self._on_state[course.state]
        return min(
            (self.requests[name].priority for name in names if self._courses[name].plan.fields),
            default=_NEVER,
        )

    def _choose_ahead(self, share: int) -> dict[str, int]:
        """Find the decisions that were left out of a step and are to be in this one.

        Half of a step is for those that are read to their end in it, one of each state. To one
        that needs more, and is alone with that, goes also what was left of the half before. So a
        lone question waits for one step at most, be it a flood or a long state that came before
        it. What needs more than a step has the rest of the half if it is the most urgent such.

        Returns:
            The tokens that are kept for each, by name.
        """
        ahead: dict[str, int] = {}
        large: list[tuple[str, int]] = []
        longest: tuple[str, Course] | None = None
        states: set[bytes | str] = set()
        room = half = share // 2
        for request in sorted(chain(self.running, self.waiting), key=self._due):
            course, name = self._courses.get(request.request_id), request.request_id
            if course is None or self._due(request) == _NEVER:
                continue
            rest = request.num_tokens - request.num_computed_tokens
            state = course.state or name
            if rest <= 0 or state in states:
                continue
            states.add(state)
            reused = course.reused
            if request.status != RequestStatus.RUNNING:
                reused = self._look_up(request, course.plan.limit + 1)[1]
                rest -= reused
            whole = request.num_tokens - reused
            if whole > share:
                longest = longest or (name, course)
            elif course.left_out and whole > half:
                large.append((name, rest))
            elif course.left_out and rest <= room:
                room -= rest
                ahead[name] = rest
        if len(large) == 1 and large[0][1] <= room + half - min(self._kept, half):
            ahead |= large
            room = 0
        self._kept = sum(ahead.values())
        if longest is not None and longest[1].left_out and room:
            ahead[longest[0]] = room
        return ahead

    def _side(self, request: Request) -> Side:
        course = self._courses.get(request.request_id)
        if course is None:
            return "chat"
        return "decision" if course.plan.fields or self._awaited(course) else "prime"

    def _room(self, request: Request) -> int:
        """Count the tokens that a request may be given in this step."""
        side = self._side(request)
        if side == "chat" and request.status != RequestStatus.RUNNING:
            chats = sum(self._side(each) == "chat" for each in self.running)
            if chats >= self._shares.chat_seats:
                return 0
        left = self._shares.left(side)
        if side == "chat":
            return left
        kept = sum(self._ahead.values()) - self._ahead.get(request.request_id, 0)
        return max(0, left - kept)

    def _select_waiting_queue_for_scheduling(self) -> RequestQueue | None:
        """Give the queue whose first request is next; sides that have had their share step aside.

        If there is no other, one of them stays, gets nothing, and ends vLLM's round.
        """
        queue = super()._select_waiting_queue_for_scheduling()
        while queue is not None and not self._room(queue.peek_request()):
            side = self._side(queue.peek_request())
            spent = [request for request in queue if self._side(request) == side]
            if len(spent) == len(self.waiting) + len(self.skipped_waiting):
                break
            queue.remove_requests(spent)
            self._aside += spent
            queue = super()._select_waiting_queue_for_scheduling()
        return queue

    def update_from_output(
        self, scheduler_output: SchedulerOutput, model_runner_output: ModelRunnerOutput
    ) -> dict[int, EngineCoreOutputs]:
        """Do vLLM's own, then put each decision's outcome into its output."""
        logits: dict[str, list[float]] = getattr(model_runner_output, KEY, None) or {}
        step: int = getattr(scheduler_output, KEY)
        outcomes = {
            request_id: Outcome(
                logits=logits.get(request_id, []),
                first_step=course.first_step,
                last_step=step,
                missed=course.missed,
            )
            for request_id in scheduler_output.num_scheduled_tokens
            if (course := self._courses.get(request_id)) is not None
            and (request_id in logits or not course.plan.fields)
        }
        outputs = super().update_from_output(scheduler_output, model_runner_output)
        for request in self._primed.values():
            outcomes[request.request_id] = _KNOWN
            outputs.setdefault(request.client_index, EngineCoreOutputs(outputs=[])).outputs.append(
                EngineCoreOutput(request.request_id, [], finish_reason=FinishReason.STOP)
            )
        self._primed.clear()
        if outcomes:
            for output in (o for client in outputs.values() for o in client.outputs):
                if output.request_id in outcomes:
                    # the one field that vLLM hands from here to the caller unread
                    outcome = msgspec.to_builtins(outcomes[output.request_id])
                    output.kv_transfer_params = {KEY: outcome}
        return outputs

    def _free_request(self, request: Request, *args: Any, **kwargs: Any) -> Any:
        course = self._courses.pop(request.request_id, None)
        if course is not None and course.seen is not None:
            course.seen.kept = min(course.seen.kept, request.num_computed_tokens)
        if course is not None and course.state is not None:
            waiting = self._on_state[course.state]
            waiting.discard(request.request_id)
            if not waiting:
                del self._on_state[course.state]
        result = super()._free_request(request, *args, **kwargs)
        self._stops.pop(request.request_id, None)
        return result

    def _get_local_prefix_cache_hit(self, request: Request) -> Any:
        """Look for what is kept of a record before its first question."""
        course = self._courses.get(request.request_id)
        if course is None:
            return super()._get_local_prefix_cache_hit(request)
        # a prime whose state became known within the step has its last unit read all the same
        end = course.plan.limit + 1 if course.plan.fields else request.num_tokens
        found = self._look_up(request, end)
        course.reused = found[1]
        return found

    def _look_up(self, request: Request, end: int) -> Any:
        # vLLM leaves the last token of what it looks up to be read
        shorter: Any = EndsAt(request, end)
        return super()._get_local_prefix_cache_hit(shorter)

    def _why(self, request: Request, course: Course) -> str:
        stops = self._stops[request.request_id]
        adapter = request.lora_request.lora_name if request.lora_request else ""
        course.seen = Seen(
            (adapter, request.cache_salt or ""),
            request.block_hashes,
            course.plan.state_start,
            stops.state if self._several(course) else stops.public,
            request.prompt_token_ids or (),
        )
        rest = request.num_tokens - course.reused
        leaves = course.reused if rest <= self._short(course) else None
        return self._history.why(course.seen, course.reused, leaves=leaves)

    def _short(self, course: Course | None) -> int:
        """Give how many tokens are read without a stop: of a question that is alone."""
        return 0 if course is None or self._several(course) else self._settings.short

    def _mamba_block_aligned_split(
        self,
        request: Request,
        num_new_tokens: int,
        num_new_local_computed_tokens: int = 0,
        num_external_computed_tokens: int = 0,
    ) -> int:
        """End a request's step where its side's share ends, or where others go on."""
        start = request.num_computed_tokens + num_new_local_computed_tokens
        end = start + min(num_new_tokens, self._room(request))
        course = self._courses.get(request.request_id)
        if start < end and start < max(request.num_prompt_tokens, request.num_tokens - 1):
            end = self._stops[request.request_id].next_end(
                start,
                end,
                several=course is None or self._several(course),
                block=self.cache_config.block_size,
                last=end >= request.num_tokens,
                junction=request.shared_prefix_boundary,
                short=self._short(course),
            )
        self._shares.take(self._side(request), end - start)
        self._ahead.pop(request.request_id, None)
        return end - start

    def _several(self, course: Course) -> bool:
        return course.plan.siblings > 0 or not course.plan.fields or self._awaited(course)

    def _awaited(self, course: Course) -> bool:
        return len(self._on_state.get(course.state or b"", ())) > 1

    def _held(self) -> list[Request]:
        """Find the waiting records whose state another one is about to read."""
        held: list[Request] = []
        readers: dict[bytes, bool] = {}
        now = time.monotonic()
        for request in self.waiting:
            course = self._courses.get(request.request_id)
            if (
                course is None
                or course.state is None
                or (len(self._on_state[course.state]) < 2 and now >= course.patience)
                or request.status != RequestStatus.WAITING
            ):
                continue
            if now < course.patience:
                held.append(request)
                continue
            if course.state not in readers:
                readers[course.state] = self._is_being_read(course.state)
                if readers[course.state]:
                    held.append(request)
                elif not self._is_known(request, course):
                    readers[course.state] = True  # this one reads it
            elif readers[course.state]:
                held.append(request)
        return held

    def _is_being_read(self, state: bytes) -> bool:
        """Tell whether a running record is on its way to the state's end, or just there.

        In the step after, vLLM moves what was kept there to a block of its own; that can be
        reused one step later.
        """
        for request_id in self._on_state[state]:
            request = self.requests[request_id]
            end = self._stops[request_id].state
            moves = 1 if end % self.cache_config.block_size else 0
            if (
                request.status == RequestStatus.RUNNING
                and request.num_computed_tokens < end + moves
            ):
                return True
        return False

    def _is_known(self, request: Request, course: Course) -> bool:
        known = self._look_up(request, course.plan.limit + 1)[1]
        return known >= self._stops[request.request_id].state
