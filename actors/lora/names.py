"""Which names an adapter may have.

A name is a model in `/v1/models`, a path segment or several of `/v1/loras/<name>`, and, as its slug, part of a
discovery key. Different names may have one slug (`a.b`, `a/b`), and an adapter without one would write over the card
of its base model.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from openengine_sidecar.messages.dynamo.naming import slugify
from openengine_sidecar.messages.errors import LoraRefusedError
from openengine_sidecar.proto.text import peer_text

MAX_NAME = 200
_SHOWN = 80
_UNWANTED = re.compile(r"[^A-Za-z0-9._:@+=~/-]")
_SEGMENT = re.compile(r"[A-Za-z0-9_][^/]*")


def check_name(name: str) -> None:
    """Check a name by itself.

    Raises:
        LoraRefusedError: it is empty, too long, holds anything but ASCII letters, digits, `._-:@+=~` and single
            slashes between, or a part of it does not start with a letter, a digit or `_`, or it has no slug.
    """
    problem = _problem(name)
    if problem:
        raise LoraRefusedError(shown(name), problem)


def check_free(name: str, others: Iterable[str], reserved: Collection[str]) -> None:
    """Check a name against those in use; the same name again is free.

    Args:
        name: a name that passed `check_name`.
        others: adapters that this worker knows.
        reserved: names of the base model.

    Raises:
        LoraRefusedError: it is the base model's, or its slug is another adapter's.
    """
    if name in reserved:
        raise LoraRefusedError(name, "is a name of the base model")
    slug = slugify(name)
    for other in others:
        if other != name and slugify(other) == slug:
            raise LoraRefusedError(name, f"would have the same card, {slug}, as adapter {other}: rename one of them")


def shown(name: str) -> str:
    """A name of any kind, fit for logs and answers."""
    return peer_text(name, limit=_SHOWN) or "''"


def _problem(name: str) -> str:
    if not name:
        return "an adapter's name must not be empty"
    if len(name) > MAX_NAME:
        return f"an adapter's name has at most {MAX_NAME} characters, not {len(name)}"
    if unwanted := _UNWANTED.search(name):
        return f"an adapter's name is made of ASCII letters, digits and ._-:@+=~/, not {unwanted[0]!a}"
    if not all(map(_SEGMENT.fullmatch, name.split("/"))):
        return "each part of an adapter's name, between slashes, must start with a letter, a digit or _"
    return "" if slugify(name) else "an adapter's name needs a letter or a digit"
