"""When to stop."""

from __future__ import annotations

from openengine_sidecar.actors.generation.terms import Terms
from openengine_sidecar.messages.dynamo.request import PreprocessedRequest, StopConditions
from openengine_sidecar.messages.engine.generation import Stopping

_MAX_TOKENS = "stop_conditions.max_tokens"
_INCLUDE_STOP = "sampling_options.include_stop_str_in_output"


def stopping(request: PreprocessedRequest, terms: Terms) -> Stopping:
    """Translates stops and token bounds.

    Without `max_tokens` the engine is given the room that the prompt leaves in the context, within what the engine
    makes at most; with neither known the engine decides.

    Raises:
        InvalidRequestError: the prompt leaves no room, or a bound contradicts another.
        UnsupportedFeatureError: the engine does not make that many tokens, or cannot keep stops in its output.
    """
    conditions = request.stop_conditions
    max_tokens = _max_tokens(conditions.max_tokens, len(request.token_ids), terms)
    return _stopping(request, terms, max_tokens, _min_tokens(conditions.min_tokens, max_tokens, terms))


def prefill_stopping(request: PreprocessedRequest, terms: Terms) -> Stopping:
    """Translates the stops of a prefill: one token, whatever was asked for, and no least number of them.

    Raises:
        InvalidRequestError: the prompt leaves no room for it.
        UnsupportedFeatureError: the engine cannot keep stops in its output.
    """
    return _stopping(request, terms, _max_tokens(1, len(request.token_ids), terms), None)


def _stopping(request: PreprocessedRequest, terms: Terms, max_tokens: int | None, min_tokens: int | None) -> Stopping:
    conditions, include_stop = request.stop_conditions, request.sampling_options.include_stop_str_in_output
    if include_stop:
        terms.require(_INCLUDE_STOP, include_stop)
    return Stopping(
        max_tokens=max_tokens,
        min_tokens=min_tokens,
        stop_texts=_stop_texts(conditions.stop or [], terms),
        stop_token_ids=_stop_token_ids(conditions, terms, include_stop=include_stop is True),
        ignore_eos=conditions.ignore_eos,
        include_stop=include_stop,
    )


def _context_length(terms: Terms) -> int | None:
    configured = terms.config.context_length
    return terms.offer.discovery.limits.max_context_length if configured is None else configured


def _max_tokens(asked: int | None, prompt: int, terms: Terms) -> int | None:
    if asked == 0:  # how a request is migrated whose last token had come: it wants but its end
        return 0
    context = _context_length(terms)
    if context is not None and prompt >= context:
        terms.reject("token_ids", f"{prompt} tokens", f"the context of {context} tokens leaves no room for output")
    if asked is None:
        return _room(None if context is None else context - prompt, terms)
    if asked < 0:
        terms.reject(_MAX_TOKENS, asked, "less than no token")
    terms.require(_MAX_TOKENS, asked)
    return asked


def _room(left: int | None, terms: Terms) -> int | None:
    room = min(
        (size for size in (left, terms.offer.discovery.limits.max_output_tokens) if size is not None), default=None
    )
    if room == 0:
        terms.refuse(_MAX_TOKENS, None, "the engine advertises max_output_tokens 0")
    return room


def _min_tokens(least: int | None, most: int | None, terms: Terms) -> int | None:
    if least is not None and most and least > most:
        terms.reject("stop_conditions.min_tokens", least, f"more than the {most} tokens that may be made")
    return least


def _stop_texts(texts: list[str], terms: Terms) -> tuple[str, ...]:
    if "" in texts:
        terms.reject("stop_conditions.stop", texts, "an empty text would stop before the first token")
    return tuple(dict.fromkeys(texts))


def _stop_token_ids(conditions: StopConditions, terms: Terms, *, include_stop: bool) -> tuple[int, ...]:
    visible = conditions.stop_token_ids_visible or []
    if visible and not include_stop:
        name = "stop_conditions.stop_token_ids_visible"
        terms.refuse(name, visible, f"the schema does not tell visible stops from hidden: ask for {_INCLUDE_STOP}")
    hidden = conditions.stop_token_ids_hidden or []
    return tuple(sorted({*(conditions.stop_token_ids or []), *visible, *hidden}))
