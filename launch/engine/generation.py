"""The event stream of one accepted request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence

from openengine_sidecar.launch.engine.admission import Admitted
from openengine_sidecar.launch.engine.distribution import Distribution, Sampler
from openengine_sidecar.launch.engine.model import ToyModel
from openengine_sidecar.launch.engine.options import EngineOptions
from openengine_sidecar.launch.engine.output import Delta, Output
from openengine_sidecar.launch.engine.plan import Plan
from openengine_sidecar.launch.engine.planning import plan_outputs, rules_of, seed_of
from openengine_sidecar.launch.engine.requests import ActiveRequest
from openengine_sidecar.launch.engine.scoring import Scorer, score_prompt
from openengine_sidecar.launch.engine.stopping import Ending
from openengine_sidecar.proto.rev2 import generation_pb2

PROMPT_SLICE = 256


class Generator:
    """Turns accepted requests into events; stateless between requests."""

    def __init__(self, options: EngineOptions, model: ToyModel) -> None:
        self._options = options
        self._model = model
        self._distribution = Distribution(model.tokenizer, options.seed)

    def plans(self, admitted: Admitted) -> list[Plan]:
        """Plan the outputs of a request that is about to be accepted.

        Raises:
            StatusError: INVALID_ARGUMENT where no text satisfies the constraint.
        """
        return plan_outputs(self._model, admitted, self._options.seed)

    async def events(
        self, admitted: Admitted, active: ActiveRequest, plans: Sequence[Plan]
    ) -> AsyncGenerator[generation_pb2.GenerateResponse, None]:
        """Produce the events of one request, by the contract's rules for generation streams and usage.

        The prompt event comes first; the token events of a step come before its finished events; usage stands on the
        event that ends the stream.
        """
        request = admitted.request
        if request.response.return_prompt_logprobs:
            yield await self.prompt_event(admitted)
        outputs = [self._output(admitted, plan, index) for index, plan in enumerate(plans)]
        running = outputs
        while running:
            await active.pace(self._options.token_delay)
            deltas = [(output, self._step(output, active)) for output in running]
            running = [output for output in running if output.ending is None]
            for output, delta in deltas:
                if delta.tokens or delta.text:
                    yield _token_event(request.request_id, output.index, delta)
            for position, (output, ending) in enumerate(ended := _ended(deltas)):
                last = not running and position == len(ended) - 1
                usage = usage_of(admitted, active, outputs) if last else None
                yield _finished_event(request.request_id, output.index, ending, usage)

    def _step(self, output: Output, active: ActiveRequest) -> Delta:
        if active.aborted:
            return output.cut(Ending(generation_pb2.FINISH_REASON_CANCELLED))
        return output.step(self._options.tokens_per_event)

    def _output(self, admitted: Admitted, plan: Plan, index: int) -> Output:
        request, prompt = admitted.request, admitted.prompt
        sampling = request.sampling if admitted.constraint is None else generation_pb2.SamplingParams()
        wants_logprobs = request.response.return_output_logprobs
        return Output(
            index=index,
            model=self._model,
            plan=plan,
            rules=rules_of(admitted),
            sampler=Sampler(sampling, seed_of(admitted, self._options.seed, index), prompt.ids),
            scorer=Scorer(self._model.tokenizer, request.response.output_candidates) if wants_logprobs else None,
            distribution=self._distribution,
            digest=prompt.digest,
            resumed=prompt.resumed,
        )

    async def prompt_event(self, admitted: Admitted) -> generation_pb2.GenerateResponse:
        """Score the prompt."""
        response = admitted.request.response
        scorer = Scorer(self._model.tokenizer, response.prompt_candidates)
        tokens: list[generation_pb2.TokenInfo] = []
        for start in range(response.prompt_logprob_start, len(admitted.prompt.ids), PROMPT_SLICE):
            tokens += score_prompt(admitted.prompt, scorer, self._distribution, start, start + PROMPT_SLICE)
            await asyncio.sleep(0)
        prompt = generation_pb2.PromptOutput(tokens=tokens)
        return generation_pb2.GenerateResponse(request_id=admitted.request.request_id, prompt=prompt)


def usage_of(admitted: Admitted, active: ActiveRequest, outputs: Sequence[Output]) -> generation_pb2.Usage:
    """Sum up a request; completion tokens are those delivered, over all outputs."""
    prompt_tokens = len(admitted.prompt.ids)
    completion = sum(output.delivered for output in outputs)
    return generation_pb2.Usage(
        prompt_tokens=prompt_tokens,
        completion_tokens=completion,
        total_tokens=prompt_tokens + completion,
        cached_prompt_tokens=active.record.cached_tokens,
    )


def _ended(deltas: Sequence[tuple[Output, Delta]]) -> list[tuple[Output, Ending]]:
    return [(output, delta.ending) for output, delta in deltas if delta.ending is not None]


def _token_event(request_id: str, index: int, delta: Delta) -> generation_pb2.GenerateResponse:
    token = generation_pb2.TokenOutput(output_index=index, tokens=delta.tokens, text=delta.text)
    return generation_pb2.GenerateResponse(request_id=request_id, token=token)


def _finished_event(
    request_id: str, index: int, ending: Ending, usage: generation_pb2.Usage | None
) -> generation_pb2.GenerateResponse:
    finished = generation_pb2.GenerationFinished(output_index=index, reason=ending.reason, stop_match=ending.match)
    return generation_pb2.GenerateResponse(request_id=request_id, finished=finished, usage=usage)
