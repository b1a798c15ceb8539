"""What is served, and as whom: the engine, the model, the worker's identity."""

from __future__ import annotations

from openengine_sidecar.launch.options import kinds
from openengine_sidecar.launch.options.setting import Heading, Setting

_ENGINE = Heading("Engine")
_MODEL = Heading("Model")
_IDENTITY = Heading("Worker identity")

_ENGINE_SETTINGS: tuple[Setting, ...] = (
    _ENGINE.setting(
        ("--grpc-endpoint", "--trtllm-endpoint"),
        ("DYN_SIDECAR_GRPC_ENDPOINT", "TRTLLM_GRPC_ENDPOINT"),
        "The engine's OpenEngine server, as host:port or a plaintext URL (http://, grpc://).",
        "engine.endpoint",
        type=kinds.ENGINE_ADDRESS,
        required=True,
    ),
    _ENGINE.own("--grpc-connections", "engine.connections", kinds.CONNECTIONS, "Connections to share the load."),
    _ENGINE.own(
        "--grpc-connect-attempt-timeout-secs",
        "engine.connect_attempt_timeout",
        kinds.SECONDS,
        "Longest single attempt to connect.",
    ),
    _ENGINE.own("--grpc-retry-interval-secs", "engine.retry_interval", kinds.SECONDS, "Pause between two attempts."),
    _ENGINE.own(
        "--grpc-startup-deadline-secs",
        "engine.startup_deadline",
        kinds.SECONDS,
        "How long to wait for an engine that serves before giving up.",
    ),
    _ENGINE.own(
        "--grpc-max-receive-bytes", "engine.max_receive_bytes", kinds.BYTES, "Largest message from the engine."
    ),
    _ENGINE.own("--grpc-max-send-bytes", "engine.max_send_bytes", kinds.BYTES, "Largest message to the engine."),
    _ENGINE.own(
        "--schema-release",
        "engine.schema_release",
        kinds.TEXT,
        "Accept only this release of the schema; unset accepts any released one.",
    ),
    _ENGINE.dynamo(
        "--disaggregation-mode",
        "DYN_DISAGGREGATION_MODE",
        kinds.ROLE,
        "Role to serve as; unset takes what the engine says, or agg where it does not say. Must not contradict it.",
        "engine.role",
    ),
    _ENGINE.refused(
        "--route-to-encoder", "DYN_ROUTE_TO_ENCODER", "there are no encode workers to route to", switch=True
    ),
    _ENGINE.refused("--enable-rl", "DYN_ENABLE_RL", "weight updates are not routed to the engine", switch=True),
)

_MODEL_SETTINGS: tuple[Setting, ...] = (
    _MODEL.own(
        "--model-path",
        "model.path",
        kinds.MODEL_DIRECTORY,
        "Local directory with the model's tokenizer, configuration and chat template.",
        required=True,
    ),
    _MODEL.own("--model", "engine.model", kinds.TEXT, "The engine's model to serve; unset takes the only one it has."),
    _MODEL.own(
        "--served-model-name", "model.served_name", kinds.TEXT, "Name shown to clients; unset takes the engine's."
    ),
    _MODEL.own("--model-aliases", "model.aliases", kinds.WORDS, "Further names for the same model."),
    _MODEL.setting(
        ("--context-length",),
        ("DYN_SIDECAR_CONTEXT_LENGTH", "TRTLLM_CONTEXT_LENGTH"),
        "Tokens of prompt and answer together; unset takes what the engine reports.",
        "model.context_length",
        "requests.context_length",
        type=kinds.CONTEXT_LENGTH,
    ),
    _MODEL.dynamo(
        "--endpoint-types",
        "DYN_ENDPOINT_TYPES",
        kinds.ENDPOINT_TYPES,
        "What clients may ask of the model.",
        "model.endpoint_types",
    ),
    _MODEL.dynamo(
        "--custom-jinja-template",
        "DYN_CUSTOM_JINJA_TEMPLATE",
        kinds.READABLE_FILE,
        "Chat template used in place of the model's.",
        "model.custom_template",
    ),
    _MODEL.dynamo(
        "--dyn-tool-call-parser",
        "DYN_TOOL_CALL_PARSER",
        kinds.TEXT,
        "Name of the frontend's tool call parser; unset takes the engine's.",
        "model.tool_call_parser",
    ),
    _MODEL.dynamo(
        "--dyn-reasoning-parser",
        "DYN_REASONING_PARSER",
        kinds.TEXT,
        "Name of the frontend's reasoning parser; unset takes the engine's.",
        "model.reasoning_parser",
    ),
    _MODEL.dynamo(
        "--exclude-tools-when-tool-choice-none",
        "DYN_EXCLUDE_TOOLS_WHEN_TOOL_CHOICE_NONE",
        kinds.TRUTH,
        "Leave tools out of the prompt when tool_choice is none.",
        "model.exclude_tools_when_tool_choice_none",
    ),
    _MODEL.refused(
        "--dyn-default-thinking-mode", "DYN_DEFAULT_THINKING_MODE", "the model card carries no thinking mode; unset it"
    ),
)

_IDENTITY_SETTINGS: tuple[Setting, ...] = (
    _IDENTITY.dynamo("--namespace", "DYN_NAMESPACE", kinds.NAME, "Namespace to register under.", "identity.namespace"),
    _IDENTITY.dynamo(
        "--namespace-worker-suffix",
        "DYN_NAMESPACE_WORKER_SUFFIX",
        kinds.NAME,
        "Appended to the namespace as -SUFFIX unless it ends so already.",
    ),
    _IDENTITY.dynamo(
        "--component",
        "DYN_COMPONENT",
        kinds.NAME,
        "Component within it; unset lets a prefill worker stand in prefill.",
        "identity.component",
    ),
    _IDENTITY.dynamo("--endpoint", "DYN_ENDPOINT", kinds.NAME, "Endpoint that takes requests.", "identity.endpoint"),
)

WORKER: tuple[Setting, ...] = _ENGINE_SETTINGS + _MODEL_SETTINGS + _IDENTITY_SETTINGS
