from __future__ import annotations

from openengine_sidecar.messages.engine.discovery import Discovery, Role
from openengine_sidecar.messages.facts import EngineDown, EngineUp, PlaneState, Registered, Withdrawn
from tests.support.cards import toy_card

UP = EngineUp(
    discovery=Discovery(
        dialect="rev2",
        engine_name="reference",
        engine_version="1.0",
        instance_id="engine-1",
        schema_revision=2,
        minimum_client_revision=2,
        schema_release="r2",
        role=Role.AGGREGATED,
        supported_models=("toy",),
        model_id="toy",
        served_model_name="toy",
    ),
    role=Role.AGGREGATED,
)
DOWN = EngineDown(cause="connection refused", lost=True)
NOT_SERVING = EngineDown(cause="says draining", lost=False)
CONNECTED = PlaneState(connected=True)
DISCONNECTED = PlaneState(connected=False, detail="broken pipe")
REGISTERED = Registered(model="toy", instance_id=0xABC, card=toy_card())
WITHDRAWN = Withdrawn(cause="engine lost")
EVERYTHING = (UP, CONNECTED, REGISTERED)
