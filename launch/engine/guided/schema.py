"""JSON Schema: writing a value that satisfies one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from openengine_sidecar.launch.engine.guided.document import AnySchema, Schema
from openengine_sidecar.launch.engine.guided.draw import Draw
from openengine_sidecar.launch.engine.guided.errors import refuse
from openengine_sidecar.launch.engine.guided.regex import compile_regex
from openengine_sidecar.launch.engine.guided.scalars import write_number, write_string

DEEPEST = 6
ENDLESS = 24
SAID = "said"
ANYTHING = Schema()


class SchemaPattern:
    """One JSON schema, checked.

    Raises:
        ConstraintError: it is malformed, or uses what is not supported.
    """

    def __init__(self, text: str) -> None:
        try:
            self._document: object = msgspec.json.decode(text)
        except msgspec.DecodeError as error:
            refuse(f"the JSON schema is no JSON: {error}")
        self._references: dict[str, AnySchema] = {}
        self._root = self._read(self._document)
        self._check(self._root)

    def write(self, draw: Draw) -> str:
        """Write a JSON text of a value that satisfies the schema.

        Raises:
            ConstraintError: no value does, as far as this engine can see.
        """
        return msgspec.json.encode(self._value(self._root, draw, 0)).decode()

    def _read(self, found: object) -> AnySchema:
        try:
            schema: AnySchema = msgspec.convert(found, AnySchema)
        except msgspec.ValidationError as error:
            refuse(f"the JSON schema is not supported: {error}")
        return schema

    def _check(self, schema: AnySchema) -> None:
        if isinstance(schema, bool):
            return
        if schema.pattern is not None:
            compile_regex(schema.pattern)
        if schema.ref is not None and schema.ref not in self._references:
            self._references[schema.ref] = True
            self._references[schema.ref] = found = self._read(self._at(schema.ref))
            self._check(found)
        for child in schema.children:
            self._check(child)

    def _at(self, reference: str) -> object:
        if not reference.startswith("#"):
            refuse(f"JSON schema reference {reference!r} leaves the document")
        found: Any = self._document
        try:
            for part in reference[1:].split("/")[1:]:
                found = found[part.replace("~1", "/").replace("~0", "~")]
        except (KeyError, TypeError):
            refuse(f"JSON schema reference {reference!r} leads nowhere")
        return found

    def _value(self, schema: AnySchema, draw: Draw, depth: int) -> object:
        if schema is False or depth > ENDLESS:
            refuse("no value satisfies the JSON schema" if schema is False else "the JSON schema never ends")
        if isinstance(schema, bool):
            return draw.echo()
        if schema.ref is not None:
            return self._value(self._references[schema.ref], draw, depth + 1)
        if schema.all_of:
            return self._value(self._merged(schema, schema.all_of), draw, depth + 1)
        if schema.options:
            return self._value(self._option(schema.options, draw, depth), draw, depth + 1)
        return self._plain(schema, draw, depth)

    def _plain(self, schema: Schema, draw: Draw, depth: int) -> object:
        if schema.const is not msgspec.UNSET:
            return schema.const
        if schema.enum is not None:
            return _member(schema.enum, draw)
        kind = schema.kind if isinstance(schema.kind, str) else draw.one_of(schema.kind)
        writers: dict[str, Callable[[], object]] = {
            "string": lambda: write_string(schema, draw),
            "integer": lambda: write_number(schema, draw, whole=True),
            "number": lambda: write_number(schema, draw, whole=False),
            "boolean": lambda: bool(draw.below(2)),
            "null": lambda: None,
            "array": lambda: self._array(schema, draw, depth),
            "object": lambda: self._object(schema, draw, depth),
        }
        if kind not in writers:
            refuse(f"JSON schema type {kind!r} is not known")
        return writers[kind]()

    def _option(self, options: list[AnySchema], draw: Draw, depth: int) -> AnySchema:
        flat = [option for option in options if isinstance(option, bool) or option.kind not in {"array", "object"}]
        flat = [option for option in flat if isinstance(option, bool) or option.ref is None]
        return draw.one_of(flat if flat and depth >= DEEPEST else options)

    def _merged(self, schema: Schema, parts: list[AnySchema]) -> Schema:
        merged = msgspec.structs.replace(schema, all_of=None)
        for part in parts:
            whole = self._references[part.ref] if isinstance(part, Schema) and part.ref else part
            if isinstance(whole, Schema):
                merged = _both(merged, whole)
        return merged

    def _array(self, schema: Schema, draw: Draw, depth: int) -> list[object]:
        prefix = schema.prefix_items
        wish = max(schema.min_items, len(prefix), 1 if depth < DEEPEST else 0)
        count = len(prefix) if schema.items is False else wish
        if schema.max_items is not None:
            count = min(count, schema.max_items)
        if count < schema.min_items:
            refuse("no array satisfies the JSON schema")
        kinds = [*prefix, *([schema.items] * (count - len(prefix)))][:count]
        return [self._value(kind, draw, depth + 1) for kind in kinds]

    def _object(self, schema: Schema, draw: Draw, depth: int) -> dict[str, object]:
        names = [name for name in schema.properties if name in schema.required or depth < DEEPEST]
        names += [name for name in schema.required if name not in schema.properties]
        other = schema.additional_properties
        if not schema.properties and not names and other is not False:
            names = [SAID]
        return {name: self._value(schema.properties.get(name, other), draw, depth + 1) for name in names}


def _both(own: Schema, added: Schema) -> Schema:
    """Combine two schemas that must both hold; where both give one bound, the added one counts."""
    more: dict[str, Any] = {
        name: value for name in Schema.__struct_fields__ if (value := getattr(added, name)) != getattr(ANYTHING, name)
    }
    if added.properties:
        more["properties"] = {**own.properties, **added.properties}
    if added.required:
        more["required"] = [*own.required, *added.required]
    return msgspec.structs.replace(own, **more)


def _member(values: list[Any], draw: Draw) -> object:
    if not values:
        refuse("an empty enum has no value")
    said = [value for value in values if isinstance(value, str) and value and value in draw.said]
    return draw.one_of(said or values)
