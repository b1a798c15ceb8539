from __future__ import annotations

import sys
from typing import Annotated, Any, Generic, Literal, Never, TypeAlias, TypeVar, Union

import msgspec
import pytest

from openengine_sidecar.supervision import Actor, Supervisor, ThreadActor
from openengine_sidecar.supervision._behaviour import Behaviour
from openengine_sidecar.supervision._vocabulary import vocabulary_of

T = TypeVar("T")


class A(msgspec.Struct, frozen=True):
    pass


class B(msgspec.Struct, frozen=True):
    pass


class C(B, frozen=True):
    pass


Alias: TypeAlias = A | B
Nested = Alias | int


class Bare(Actor[A]):
    pass


class Pipe(Actor[A | B]):
    pass


class OldStyle(Actor[Union[A, B]]):  # noqa: UP007 - must be understood too
    pass


class ByAlias(Actor[Nested]):
    pass


class Forward(Actor["A | Later"]):
    pass


class Later(msgspec.Struct, frozen=True):
    pass


class Inherits(Pipe):
    pass


class Template(Actor[T | B], Generic[T]):
    pass


class Filled(Template[A]):
    pass


class Extras(Actor[Annotated[A, "note"] | Literal["on", 1] | list[int] | None]):
    pass


class OnThread(ThreadActor[A | B]):
    pass


class Anything(Actor[Any]):
    pass


class Mute(Actor[Never]):
    pass


@pytest.mark.parametrize(
    ("actor", "types"),
    [
        (Bare, {A}),
        (Pipe, {A, B}),
        (OldStyle, {A, B}),
        (ByAlias, {A, B, int}),
        (Forward, {A, Later}),
        (Inherits, {A, B}),
        (Filled, {A, B}),
        (Extras, {A, str, int, list, type(None)}),
        (OnThread, {A, B}),
        (Mute, set()),
        (Supervisor, set()),
        (Actor, {object}),
        (Anything, {object}),
    ],
)
def test_the_protocol_is_read_off_the_class(actor: Any, types: set[type]) -> None:
    assert actor.vocabulary().types == types


@pytest.mark.skipif(sys.version_info < (3, 12), reason="`type X = ...` came with 3.12")
def test_a_type_statement_is_understood() -> None:
    scope: dict[str, Any] = {"Actor": Actor, "A": A, "B": B, "__name__": __name__}
    exec("type Mail = A | B\nclass Typed(Actor[Mail]): pass", scope)  # noqa: S102 - no syntax of 3.11
    assert scope["Typed"].vocabulary().types == {A, B}


def test_subclasses_of_messages_are_understood_and_learnt() -> None:
    class Local(Actor[B]):
        pass

    vocabulary = Local.vocabulary()
    assert C not in vocabulary.known
    assert vocabulary.understands(C())
    assert C in vocabulary.known
    assert not vocabulary.understands(A())
    assert Local.vocabulary() is vocabulary


def test_what_is_no_type_is_refused() -> None:
    class Wrong(Actor[3]):  # type: ignore[valid-type] # what it is about
        pass

    with pytest.raises(TypeError, match="3 is no type of message"):
        vocabulary_of(Wrong, Behaviour)
