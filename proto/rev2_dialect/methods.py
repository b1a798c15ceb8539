"""Method paths of revision 2: the package on the wire is not the one that the stubs live in."""

from __future__ import annotations

from enum import StrEnum


class Method(StrEnum):
    """Full path of each method."""

    GET_ENGINE_INFO = "/openengine.v1.OpenEngine/GetEngineInfo"
    GET_MODEL_INFO = "/openengine.v1.OpenEngine/GetModelInfo"
    GET_KV_CONNECTOR_INFO = "/openengine.v1.OpenEngine/GetKvConnectorInfo"
    GENERATE = "/openengine.v1.OpenEngine/Generate"
    EMBED = "/openengine.v1.OpenEngine/Embed"
    CLASSIFY = "/openengine.v1.OpenEngine/Classify"
    SCORE = "/openengine.v1.OpenEngine/Score"
    ABORT = "/openengine.v1.OpenEngine/Abort"
    DRAIN = "/openengine.v1.OpenEngine/Drain"
    HEALTH = "/openengine.v1.OpenEngine/Health"
    LOAD_LORA = "/openengine.v1.OpenEngine/LoadLora"
    UNLOAD_LORA = "/openengine.v1.OpenEngine/UnloadLora"
    LIST_LORAS = "/openengine.v1.OpenEngine/ListLoras"
    GET_KV_EVENT_SOURCES = "/openengine.v1.OpenEngine/GetKvEventSources"
    SUBSCRIBE_KV_EVENTS = "/openengine.v1.OpenEngine/SubscribeKvEvents"
    GET_LOAD = "/openengine.v1.OpenEngine/GetLoad"
    SUBSCRIBE_RUNTIME_EVENTS = "/openengine.v1.OpenEngine/SubscribeRuntimeEvents"
