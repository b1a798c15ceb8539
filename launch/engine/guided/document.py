"""The part of JSON Schema that is known here, as types: whatever else a schema says is refused by its decoder.

Known: `type` (also several), `enum`, `const`, `$ref` inside the document, `anyOf`, `oneOf`, `allOf`; strings with
`minLength`, `maxLength`, `pattern`, `format`; numbers with bounds and `multipleOf`; arrays with `items`,
`prefixItems`, `minItems`, `maxItems`; objects with `properties`, `required`, `additionalProperties`; annotations.
"""

from __future__ import annotations

from typing import Any

import msgspec


class Annotations(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Keywords that say nothing about which values are valid."""

    dialect: Any = msgspec.field(default=None, name="$schema")
    identifier: Any = msgspec.field(default=None, name="$id")
    anchor: Any = msgspec.field(default=None, name="$anchor")
    comment: Any = msgspec.field(default=None, name="$comment")
    defs: Any = msgspec.field(default=None, name="$defs")
    definitions: Any = None
    title: Any = None
    description: Any = None
    default: Any = None
    examples: Any = None
    deprecated: Any = None
    read_only: Any = msgspec.field(default=None, name="readOnly")
    write_only: Any = msgspec.field(default=None, name="writeOnly")


class Schema(Annotations, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """One schema that is an object."""

    type: str | list[str] | None = None
    enum: list[Any] | None = None
    const: Any = msgspec.UNSET
    ref: str | None = msgspec.field(default=None, name="$ref")
    any_of: list[AnySchema] | None = None
    one_of: list[AnySchema] | None = None
    all_of: list[AnySchema] | None = None
    min_length: int = 0
    max_length: int | None = None
    pattern: str | None = None
    format: str = ""
    minimum: float | None = None
    maximum: float | None = None
    exclusive_minimum: float | None = None
    exclusive_maximum: float | None = None
    multiple_of: float | None = None
    items: AnySchema = True
    prefix_items: list[AnySchema] = []
    min_items: int = 0
    max_items: int | None = None
    properties: dict[str, AnySchema] = {}
    required: list[str] = []
    additional_properties: AnySchema = True

    @property
    def options(self) -> list[AnySchema] | None:
        """The schemas of which one is to hold; None where there is no such choice."""
        return self.any_of or self.one_of

    @property
    def children(self) -> list[AnySchema]:
        """Every schema inside this one, definitions left out."""
        groups = [self.any_of, self.one_of, self.all_of, self.prefix_items, list(self.properties.values())]
        return [self.items, self.additional_properties, *(child for group in groups for child in group or ())]

    @property
    def kind(self) -> str | list[str]:
        """The type, or types, that a value has; guessed from the other keywords where it is not said."""
        if self.type is not None:
            return self.type
        if self.properties or self.required:
            return "object"
        if self.prefix_items or self.min_items or self.items is not True:
            return "array"
        bounds = (self.minimum, self.maximum, self.exclusive_minimum, self.exclusive_maximum, self.multiple_of)
        return "string" if all(bound is None for bound in bounds) else "number"


AnySchema = Schema | bool
"""A schema, or True for any value and False for none."""
