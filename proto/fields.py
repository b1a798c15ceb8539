"""Putting values into protobuf fields, and reading presence out of them."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from google.protobuf.message import Message


class FieldError(ValueError):
    """A value has no form in the schema.

    Attributes:
        field: dotted path of the field.
        problem: why the value does not fit.
    """

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem


@contextmanager
def writing(field: str) -> Generator[None]:
    """Name the field in whatever protobuf has against a value put into it.

    Raises:
        FieldError: wrong type, out of the range of its integer type, or a text that UTF-8 cannot carry.
    """
    try:
        yield
    except FieldError:
        raise
    except (TypeError, ValueError) as error:
        raise FieldError(field, str(error)) from error


def given(message: Message, field: str) -> Any:
    """Read a field with presence: its value, or None where the peer did not say."""
    return getattr(message, field) if message.HasField(field) else None
