"""Closed protocols, read off `Actor[A | B]`: which types of message an actor class understands."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from typing import Annotated, Any, ForwardRef, Literal, Never, TypeVar, Union, cast, get_args, get_origin


class Vocabulary:
    """The message types of one actor class.

    `known` is the set the hot path looks into: exact types. Subclasses are learnt as they arrive.
    """

    def __init__(self, types_: frozenset[type]) -> None:
        self.types = types_
        self.known: set[type] = set(types_)
        self._open = object in types_

    def understands(self, message: object) -> bool:
        """Whether the message belongs to the protocol; learns its type if it does."""
        kind = type(message)
        if kind in self.known:
            return True
        if self._open or isinstance(message, tuple(self.types)):
            self.known.add(kind)
            return True
        return False


def vocabulary_of(actor_class: type, root: type) -> Vocabulary:
    """Read the protocol of `actor_class`, a subclass of the generic `root`.

    Unions, aliases of unions (also `type X = ...`), `Annotated`, literals, parametrised generics, strings and
    type variables bound on the way down are understood. `Never` is the empty protocol; `Any`, `object` and a class
    that names none understand everything.

    Raises:
        TypeError: the parameter names something that is not a type.
    """
    return Vocabulary(frozenset(_members(_parameter(actor_class, root), sys.modules[actor_class.__module__])))


def _parameter(cls: type, root: type) -> Any:
    for base in cast("tuple[Any, ...]", getattr(cls, "__orig_bases__", ())):
        origin = get_origin(base)
        if not isinstance(origin, type) or not issubclass(origin, root):
            continue
        if origin is root:
            return get_args(base)[0]
        inherited = _parameter(origin, root)
        return _substituted(inherited, dict(zip(_variables(origin), get_args(base), strict=False)))
    for base in cls.__bases__:
        if issubclass(base, root) and base is not root:
            return _parameter(base, root)
    return Any


def _variables(generic: Any) -> tuple[TypeVar, ...]:
    return cast("tuple[TypeVar, ...]", getattr(generic, "__parameters__", ()))


def _substituted(annotation: Any, binding: dict[TypeVar, Any]) -> Any:
    if isinstance(annotation, TypeVar):
        return binding.get(annotation, annotation)
    variables = _variables(annotation)
    return annotation[tuple(binding.get(v, v) for v in variables)] if variables else annotation


def _members(annotation: Any, module: types.ModuleType) -> Iterator[type]:
    origin = get_origin(annotation)
    if annotation in (Any, object) or isinstance(annotation, TypeVar):
        yield object
    elif annotation is None:
        yield types.NoneType
    elif isinstance(annotation, (str, ForwardRef)):
        text = annotation if isinstance(annotation, str) else annotation.__forward_arg__
        # A name that is only known once the module is complete; the text is the program's own.
        yield from _members(eval(text, vars(module)), module)  # noqa: S307
    elif annotation is Never:
        return
    elif origin in (Union, types.UnionType):
        for member in get_args(annotation):
            yield from _members(member, module)
    elif origin is Annotated:
        yield from _members(get_args(annotation)[0], module)
    elif origin is Literal:
        yield from (type(value) for value in get_args(annotation))
    elif hasattr(annotation, "__value__"):  # type X = ...
        yield from _members(annotation.__value__, module)
    else:
        yield _class(origin if origin is not None else annotation)


def _class(annotation: Any) -> type:
    if not isinstance(annotation, type):
        msg = f"{annotation!r} is no type of message"
        raise TypeError(msg)
    return annotation
