"""Decides, before a request is accepted, what each of its outputs heads for."""

from __future__ import annotations

from dataclasses import replace

from openengine_sidecar.launch.engine.admission import Admitted
from openengine_sidecar.launch.engine.guided.constraint import Constraint
from openengine_sidecar.launch.engine.guided.draw import Draw
from openengine_sidecar.launch.engine.guided.errors import ConstraintError
from openengine_sidecar.launch.engine.model import ToyModel
from openengine_sidecar.launch.engine.plan import Plan, echo_plan, fixed_plan, notes
from openengine_sidecar.launch.engine.status import invalid
from openengine_sidecar.launch.engine.stopping import StopRules


def plan_outputs(model: ToyModel, admitted: Admitted, engine_seed: int) -> list[Plan]:
    """Plan every output of a request.

    Raises:
        StatusError: INVALID_ARGUMENT where no text satisfies the constraint.
    """
    if admitted.constraint is None:
        request = admitted.request
        rank = request.kv.data_parallel_rank if request.kv.HasField("data_parallel_rank") else None
        extra = notes(request, rank)
        plans = [echo_plan(model, admitted.prompt.said, extra, index) for index in range(admitted.outputs)]
    else:
        plans = [_constrained(model, admitted, admitted.constraint, engine_seed, n) for n in range(admitted.outputs)]
    for plan in plans:
        plan.skip(admitted.prompt.resumed)
    return plans


def rules_of(admitted: Admitted) -> StopRules:
    """Return the stop rules of a request: where a constraint is complete, nothing can make the output go on."""
    if admitted.constraint is None:
        return admitted.rules
    return replace(admitted.rules, ignore_eos=False, min_tokens=0)


def seed_of(admitted: Admitted, engine_seed: int, index: int) -> str:
    """Return what makes the random choices of one output repeatable."""
    sampling = admitted.request.sampling
    if sampling.HasField("seed"):
        return f"{sampling.seed}/{index}"
    return f"{engine_seed}/{admitted.request.request_id}/{index}"


def _constrained(model: ToyModel, admitted: Admitted, constraint: Constraint, engine_seed: int, index: int) -> Plan:
    varied = admitted.request.sampling.temperature > 0
    seed = seed_of(admitted, engine_seed, index) if varied else f"{admitted.prompt.digest}/{index}"
    draw = Draw(seed, admitted.prompt.said.decode(errors="replace"), varied=varied)
    try:
        return fixed_plan(model, constraint.write(draw).encode())
    except ConstraintError as error:
        raise invalid(str(error)) from error
