"""Amended answers: what a unary method says is changed by script, for clients that must not take everything."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from google.protobuf import json_format
from google.protobuf.message import Message

from openengine_sidecar.messages.errors import ConfigurationError

OPTION = "--answer"


class Amendments:
    """Changes by method, each written `METHOD=JSON`, where the JSON is a part of the answer in proto JSON form.

    Its fields replace those of the answer (null clears one), messages are changed field by field, lists replaced
    whole. Numbers stand for enum values too, known or not. Field names are the schema's.
    """

    def __init__(self, texts: Iterable[str], kinds: dict[str, type[Message]]) -> None:
        self._kinds = kinds
        self._changes: dict[str, dict[str, Any]] = {}
        self.play(texts)

    def play(self, texts: Iterable[str]) -> None:
        """Replace all changes.

        Raises:
            ConfigurationError: a text names no unary method, or its JSON does not fit the answer.
        """
        self._changes = dict(self._read(text) for text in texts)

    def amend(self, method: str, answer: Message) -> None:
        """Change an answer in place."""
        if change := self._changes.get(method):
            json_format.ParseDict(change, answer)

    def _read(self, text: str) -> tuple[str, dict[str, Any]]:
        method, _, body = text.partition("=")
        if method not in self._kinds:
            raise ConfigurationError(OPTION, f"{method!r} is not one of {', '.join(sorted(self._kinds))}")
        try:
            change = msgspec.json.decode(body, type=dict[str, Any])
            json_format.ParseDict(change, self._kinds[method]())
        except (msgspec.DecodeError, json_format.ParseError) as error:
            problem = " ".join(str(error).split())
            raise ConfigurationError(OPTION, f"{method}: {problem}") from error
        return method, change
