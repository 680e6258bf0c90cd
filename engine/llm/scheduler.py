"""vLLM's scheduler, for records: each token is read once, and answers leave with the outputs.

vLLM builds this class by name in the engine process: `scheduler_cls`.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import msgspec
from vllm.platforms import current_platform
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.engine import EngineCoreOutputs
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus

from engine.llm.missed import History, Seen
from engine.llm.plan import Outcome, ReadPlan, find_plan
from engine.llm.settings import KEY
from engine.llm.snapshots import EndsAt, Stops, watch

if TYPE_CHECKING or current_platform.is_cpu():
    from vllm.v1.core.sched.scheduler import Scheduler as Base
else:
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler as Base


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
    """

    plan: ReadPlan
    state: bytes | None
    first_step: int = 0
    reused: int = 0
    missed: str = ""
    patience: float = 0.0


class DecisionScheduler(Base):
    """Stops records where others go on, lets one read a state for all that wait for it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._courses: dict[str, Course] = {}
        self._stops: dict[str, Stops] = {}
        self._on_state: dict[bytes, set[str]] = {}
        self._history = History(self.hash_block_size)
        for manager in self.kv_cache_manager.coordinator.single_type_managers:
            watch(manager, self._stops)

    def add_request(self, request: Request) -> None:
        """Take a request; note where a record may be reused."""
        plan = find_plan(request.sampling_params)
        if plan is not None:
            stops = Stops(plan, self.hash_block_size)
            units = stops.state // self.hash_block_size
            state = request.block_hashes[units - 1] if units else None
            self._stops[request.request_id] = stops
            self._courses[request.request_id] = Course(plan, state)
            if state is not None:
                self._on_state.setdefault(state, set()).add(request.request_id)
                self._gather(self._on_state[state], plan.siblings)
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
        held = self._held()
        before = {request.request_id: place for place, request in enumerate(self.waiting)}
        if held:
            self.waiting.remove_requests(held)
        output = super().schedule(*args, **kwargs)
        if held:  # back to their places; what is new in the queue was preempted and comes first
            rest = [*self.waiting, *held]
            self.waiting.remove_requests(rest)
            for request in sorted(rest, key=lambda each: before.get(each.request_id, -1)):
                self.waiting.add_request(request)
        for request_id in output.num_scheduled_tokens:
            course = self._courses.get(request_id)
            if course is not None and not course.first_step:
                course.first_step = self.current_step
                course.missed = self._why(self.requests[request_id], course)
        setattr(output, KEY, self.current_step)
        return output

    def update_from_output(
        self, scheduler_output: SchedulerOutput, model_runner_output: ModelRunnerOutput
    ) -> dict[int, EngineCoreOutputs]:
        """Do vLLM's own, then put each decision's outcome into its output."""
        logits: dict[str, list[float]] = getattr(model_runner_output, KEY, None) or {}
        outcomes = {
            request_id: Outcome(
                logits=values,
                first_step=course.first_step,
                last_step=getattr(scheduler_output, KEY),
                missed=course.missed,
            )
            for request_id, values in logits.items()
            if (course := self._courses.get(request_id)) is not None
        }
        outputs = super().update_from_output(scheduler_output, model_runner_output)
        if outcomes:
            for output in (o for client in outputs.values() for o in client.outputs):
                if output.request_id in outcomes:
                    # the one field that vLLM hands from here to the caller unread
                    outcome = msgspec.to_builtins(outcomes[output.request_id])
                    output.kv_transfer_params = {KEY: outcome}
        return outputs

    def _free_request(self, request: Request, *args: Any, **kwargs: Any) -> Any:
        course = self._courses.pop(request.request_id, None)
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
        found = self._look_up(request, course)
        course.reused = found[1]
        return found

    def _look_up(self, request: Request, course: Course) -> Any:
        # vLLM leaves the last token of what it looks up to be read
        shorter: Any = EndsAt(request, course.plan.limit + 1)
        return super()._get_local_prefix_cache_hit(shorter)

    def _why(self, request: Request, course: Course) -> str:
        stops = self._stops[request.request_id]
        adapter = request.lora_request.lora_name if request.lora_request else ""
        seen = Seen(
            (adapter, request.cache_salt or ""),
            request.block_hashes,
            course.plan.state_start,
            stops.state if self._several(course) else stops.public,
            request.prompt_token_ids or (),
        )
        return self._history.why(seen, course.reused)

    def _mamba_block_aligned_split(
        self,
        request: Request,
        num_new_tokens: int,
        num_new_local_computed_tokens: int = 0,
        num_external_computed_tokens: int = 0,
    ) -> int:
        """End a record's step where others go on; anything else ends as vLLM wants it."""
        course = self._courses.get(request.request_id)
        if course is None:
            return super()._mamba_block_aligned_split(
                request,
                num_new_tokens,
                num_new_local_computed_tokens,
                num_external_computed_tokens,
            )
        start = request.num_computed_tokens + num_new_local_computed_tokens
        end = start + num_new_tokens
        stop = self._stops[request.request_id].next_end(
            start,
            end,
            several=self._several(course),
            block=self.cache_config.block_size,
            last=end >= request.num_tokens,
        )
        return stop - start

    def _several(self, course: Course) -> bool:
        return course.plan.siblings > 0 or len(self._on_state.get(course.state or b"", ())) > 1

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
        return self._look_up(request, course)[1] >= self._stops[request.request_id].state
