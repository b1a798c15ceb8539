"""Where a request runs and what it shares: priority, data-parallel rank, prefix cache."""

from __future__ import annotations

from openengine_sidecar.actors.generation.extra import ExtraArgs
from openengine_sidecar.actors.generation.terms import Terms
from openengine_sidecar.messages.dynamo.request import Routing

_SALT = "routing.cache_salt"
_HIDDEN = "(a secret)"
_BYPASS = "extra_args.bypass_prefix_cache"


def lora_name(routing: Routing, terms: Terms) -> str:
    """Names the adapter; empty is the base model.

    Raises:
        UnsupportedFeatureError: the engine serves no adapters.
    """
    if routing.lora_name:
        terms.require("routing.lora_name", routing.lora_name)
    return routing.lora_name or ""


def priority(routing: Routing, terms: Terms) -> int | None:
    """Translates the priority, a hint; larger is more urgent.

    Raises:
        UnsupportedFeatureError: the engine knows no priorities, and hints are not to be dropped.
    """
    hint = routing.priority
    return hint if hint is not None and terms.keep_hint("routing.priority", hint) else None


def data_parallel_rank(name: str, rank: int | None, terms: Terms) -> int | None:
    """Translates a rank that the router chose; `name` is its field.

    The KV router names a rank for every worker, also for one with a single rank; that one is not sent.

    Raises:
        InvalidRequestError: a rank that the engine does not have.
        UnsupportedFeatureError: a rank other than the first, of an engine without data parallelism.
    """
    if rank is None:
        return None
    ranks = terms.offer.discovery.parallelism.ranks
    if not terms.permits(name, rank):
        if rank not in {0, ranks.start}:
            terms.require(name, rank)
        return None
    if rank not in ranks:
        terms.reject(name, rank, f"the engine's ranks are {ranks.start} to {ranks.stop - 1}")
    return rank


def bypass_prefix_cache(extra: ExtraArgs, terms: Terms) -> bool | None:
    """Translates the wish to compute the prompt anew; its two names must agree.

    Raises:
        InvalidRequestError: the two contradict each other.
        UnsupportedFeatureError: the engine cannot bypass its prefix cache.
    """
    wishes = [wish for wish in (extra.bypass_prefix_cache, extra.disable_prefix_cache) if wish is not None]
    if len(set(wishes)) > 1:
        terms.reject(_BYPASS, extra.bypass_prefix_cache, "extra_args.disable_prefix_cache says otherwise")
    if any(wishes):
        terms.require(_BYPASS, value=True)
    return wishes[0] if wishes else None


def cache_salt(routing: Routing, extra: ExtraArgs, terms: Terms) -> str | None:
    """Translates the namespace of the prefix cache: isolation, so never dropped, and never shown.

    Raises:
        InvalidRequestError: its two places disagree.
        UnsupportedFeatureError: the engine keeps no namespaces apart.
    """
    routed, other = routing.cache_salt, extra.nvext.cache_salt if extra.nvext is not None else None
    if routed is not None and other is not None and routed != other:
        terms.reject(_SALT, _HIDDEN, "extra_args.nvext.cache_salt says otherwise")
    salt = other if routed is None else routed
    if salt is not None:
        terms.require(_SALT, _HIDDEN)
    return salt
