"""How bytes from the Dynamo side become typed values: one place turns every parser's error into a `WireError`."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from enum import StrEnum

import msgspec

from openengine_sidecar.messages.errors import WireError


class Part(StrEnum):
    """The part of an exchange that a `WireError` names."""

    FRAME = "frame"
    HEADER = "header"
    ADDRESS = "address"
    BODY = "body"
    OUTPUT = "output"


@contextmanager
def parsing(part: Part) -> Generator[None]:
    """Names the part that did not parse; the problem keeps the path of the bad field (`$.routing.dp_rank`).

    Raises:
        WireError: the block's parser failed, or the input nests deeper than the parser goes.
    """
    try:
        yield
    except (msgspec.DecodeError, RecursionError) as error:
        raise WireError(part, str(error)) from error
