"""One output of a generation: it walks its plan, samples, stops, and hands out deltas."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from dataclasses import dataclass

from openengine_sidecar.launch.engine.distribution import Distribution, Sampler, log_softmax
from openengine_sidecar.launch.engine.model import ToyModel
from openengine_sidecar.launch.engine.plan import Plan
from openengine_sidecar.launch.engine.scoring import Scorer
from openengine_sidecar.launch.engine.stopping import Ending, Stopper, StopRules
from openengine_sidecar.proto.rev2 import generation_pb2


@dataclass(slots=True)
class Delta:
    """What one step adds to an output; `ending` is set on its last step."""

    tokens: list[generation_pb2.TokenInfo]
    text: str
    ending: Ending | None


class Output:
    """One output index of a generation."""

    def __init__(
        self,
        *,
        index: int,
        model: ToyModel,
        plan: Plan,
        rules: StopRules,
        sampler: Sampler,
        scorer: Scorer | None,
        distribution: Distribution,
        digest: int,
        resumed: int,
    ) -> None:
        self.index = index
        self.delivered = 0
        self.ending: Ending | None = None
        self._tokenizer = model.tokenizer
        self._plan = plan
        self._stopper = Stopper(rules, model.tokenizer.pieces, model.eos)
        self._sampler = sampler
        self._scorer = scorer
        self._distribution = distribution
        self._digest = digest
        self._position = resumed
        self._infos: list[generation_pb2.TokenInfo] = []
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def step(self, count: int) -> Delta:
        """Generate up to `count` tokens; fewer when the output ends."""
        ids: list[int] = []
        for _ in range(count):
            released, self.ending = self._stopper.take(self._next())
            ids += released
            if self.ending is not None:
                break
        return self._delta(ids)

    def cut(self, ending: Ending) -> Delta:
        """End the output from outside; what was held back leaves with it."""
        self.ending = ending
        return self._delta(self._stopper.flush())

    def _next(self) -> int:
        target = self._plan.target(may_end=self._stopper.may_end())
        token_id = target
        if not self._sampler.trivial or self._scorer:
            logits = self._distribution.logits(target, self._digest, self._position)
            if not self._sampler.trivial:
                token_id = self._sampler.choose(logits, self._position)
                self._sampler.note(token_id)
            if self._scorer:
                self._infos.append(self._scorer.info(token_id, log_softmax(logits)))
        self._plan.step()
        self._position += 1
        return token_id

    def _delta(self, ids: Sequence[int]) -> Delta:
        self.delivered += len(ids)
        text = self._decoder.decode(self._tokenizer.join(ids), final=self.ending is not None)
        if not self._scorer:
            return Delta([generation_pb2.TokenInfo(token_id=token_id) for token_id in ids], text, self.ending)
        infos, self._infos = self._infos[: len(ids)], self._infos[len(ids) :]
        return Delta(infos, text, self.ending)
