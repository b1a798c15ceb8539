"""Guided decoding: exactly one constraint."""

from __future__ import annotations

from typing import Any

import msgspec

from openengine_sidecar.actors.generation.json_text import json_text
from openengine_sidecar.actors.generation.terms import Terms
from openengine_sidecar.messages.dynamo.request import GuidedDecoding
from openengine_sidecar.messages.engine.generation import Guide, GuideMode

_PATH = "sampling_options.guided_decoding"
_SCHEMA = f"{_PATH}.json"
_ANY_OBJECT = f"{_SCHEMA} (any object)"
_MODES = {
    "json": GuideMode.JSON_SCHEMA,
    "regex": GuideMode.REGEX,
    "choice": GuideMode.CHOICE,
    "grammar": GuideMode.EBNF_GRAMMAR,
    "structural_tag": GuideMode.STRUCTURAL_TAG,
}


def guide(options: GuidedDecoding | None, terms: Terms) -> Guide | None:
    """Translates the constraint on the output.

    The bare schema `{"type": "object"}` asks for any JSON object; it stays a schema where the engine offers no more.

    Raises:
        InvalidRequestError: several constraints at once, an empty one, or one that is no JSON.
        UnsupportedFeatureError: the engine does not offer this kind of constraint.
    """
    if options is None:
        return None
    given = [(name, value) for name in _MODES if (value := getattr(options, name)) is not None]
    if len(given) > 1:
        terms.reject(_PATH, [name for name, _ in given], "one constraint at a time")
    if not given:
        if options.backend is not None:
            terms.reject(f"{_PATH}.backend", options.backend, "there is no constraint to enforce")
        return None
    return _guide(*given[0], options.backend or "", terms)


def _guide(name: str, value: Any, backend: str, terms: Terms) -> Guide:
    if value == {"type": "object"} and name == "json" and terms.permits(_ANY_OBJECT, value):
        return Guide(mode=GuideMode.JSON_OBJECT, backend=backend)
    path = f"{_PATH}.{name}"
    terms.require(path, value)
    if name == "choice":
        if not value or "" in value:
            terms.reject(path, value, "needs at least one choice, and none that is empty")
        return Guide(mode=GuideMode.CHOICE, choices=tuple(value), backend=backend)
    text = value if name in {"regex", "grammar"} else _json_text(path, value, terms)
    if not text:
        terms.reject(path, value, "empty")
    return Guide(mode=_MODES[name], value=text, backend=backend)


def _json_text(path: str, value: object, terms: Terms) -> str:
    if isinstance(value, str):
        return _checked(path, value, terms) if path == _SCHEMA else value
    schema_like = isinstance(value, dict | bool)
    if not schema_like:
        terms.reject(path, value, "not a JSON object")
    try:
        return json_text(value)
    except ValueError as error:
        terms.reject(path, "unusable", str(error))


def _checked(path: str, text: str, terms: Terms) -> str:
    try:
        msgspec.json.decode(text, type=dict[str, Any] | bool)
    except (msgspec.DecodeError, RecursionError) as error:
        terms.reject(path, text, f"not a JSON object: {error}")
    return text
