from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto

from openengine_sidecar.proto.handoff import session_pb2
from openengine_sidecar.proto.rev2 import (
    classification_pb2,
    embedding_pb2,
    engine_pb2,
    error_pb2,
    generation_pb2,
    input_pb2,
    kv_pb2,
    lifecycle_pb2,
    lora_pb2,
    model_pb2,
    observability_pb2,
    openengine_pb2,
    scoring_pb2,
    tasks_pb2,
)
from openengine_sidecar.proto.rev2_dialect import Method

CONTRACT: dict[str, Any] = json.loads((Path(__file__).parent / "openengine-rev2.schema.json").read_text())
MODULES = (
    classification_pb2,
    embedding_pb2,
    engine_pb2,
    error_pb2,
    generation_pb2,
    input_pb2,
    kv_pb2,
    lifecycle_pb2,
    lora_pb2,
    model_pb2,
    observability_pb2,
    openengine_pb2,
    scoring_pb2,
    tasks_pb2,
)
OURS = "openengine_sidecar.rev2"
THEIRS = "openengine.v1"


def _file_protos() -> Iterator[FileDescriptorProto]:
    for module in MODULES:
        proto = FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(proto)
        yield proto


FILES = {Path(proto.name).name: proto for proto in _file_protos()}


def _renamed(type_name: str) -> str:
    name = type_name.removeprefix(".")
    return f"{THEIRS}{name.removeprefix(OURS)}" if name.startswith(f"{OURS}.") else name


def _scalar(field: FieldDescriptorProto) -> str:
    return FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()


def _type(field: FieldDescriptorProto) -> str:
    return _renamed(field.type_name) if field.type_name else _scalar(field)


def _map_entry(message: DescriptorProto, field: FieldDescriptorProto) -> DescriptorProto | None:
    for nested in message.nested_type:
        if nested.options.map_entry and field.type_name.endswith(f".{message.name}.{nested.name}"):
            return nested
    return None


def _map_description(field: FieldDescriptorProto, entry: DescriptorProto) -> dict[str, Any]:
    key, value = entry.field
    return {
        "name": field.name,
        "number": field.number,
        "kind": "map",
        "label": "map",
        "type": "map",
        "key_type": _type(key),
        "value_type": _type(value),
        "has_presence": False,
    }


def _label(field: FieldDescriptorProto) -> str:
    if field.label == FieldDescriptorProto.LABEL_REPEATED:
        return "repeated"
    return "optional" if field.proto3_optional else "singular"


def _field_description(message: DescriptorProto, field: FieldDescriptorProto) -> dict[str, Any]:
    entry = _map_entry(message, field)
    if entry is not None:
        return _map_description(field, entry)
    label = _label(field)
    kind = {"TYPE_MESSAGE": "message", "TYPE_ENUM": "enum"}.get(FieldDescriptorProto.Type.Name(field.type), "scalar")
    in_oneof = field.HasField("oneof_index") and not field.proto3_optional
    description = {
        "name": field.name,
        "number": field.number,
        "kind": kind,
        "label": label,
        "type": _type(field),
        "has_presence": label != "repeated" and (in_oneof or kind == "message" or label == "optional"),
    }
    return description | ({"oneof": message.oneof_decl[field.oneof_index].name} if in_oneof else {})


def _oneofs(message: DescriptorProto) -> dict[str, list[str]]:
    oneofs: dict[str, list[str]] = {}
    for field in message.field:
        if field.HasField("oneof_index") and not field.proto3_optional:
            oneofs.setdefault(message.oneof_decl[field.oneof_index].name, []).append(field.name)
    return oneofs


def _message_description(file: str, message: DescriptorProto) -> dict[str, Any]:
    fields = [_field_description(message, field) for field in message.field]
    oneofs = _oneofs(message)
    return {"file": file, "fields": _by_number(fields)} | ({"oneofs": oneofs} if oneofs else {})


def _by_number(fields: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(fields, key=lambda field: int(field["number"]))


MESSAGES: Mapping[str, dict[str, Any]] = {
    f"{THEIRS}.{message.name}": _message_description(name, message)
    for name, file in FILES.items()
    for message in file.message_type
}


def test_every_file_is_proto3_in_our_package() -> None:
    assert {(file.syntax, file.package) for file in FILES.values()} == {("proto3", OURS)}
    assert CONTRACT["syntax"] == "proto3"


def test_files_and_imports_agree() -> None:
    ours = {
        name: {
            "imports": sorted(path.replace("openengine_sidecar/proto/rev2", "openengine/v1") for path in f.dependency)
        }
        for name, f in FILES.items()
    }
    assert ours == {name: {"imports": sorted(file["imports"])} for name, file in CONTRACT["files"].items()}


def test_neither_side_has_messages_of_its_own() -> None:
    assert set(MESSAGES) == set(CONTRACT["messages"])
    assert len(MESSAGES) == CONTRACT["counts"]["messages"]
    assert sum(len(message["fields"]) for message in MESSAGES.values()) == CONTRACT["counts"]["fields"]


@pytest.mark.parametrize("name", sorted(CONTRACT["messages"]))
def test_message_agrees_field_by_field(name: str) -> None:
    expected = CONTRACT["messages"][name]
    assert MESSAGES[name] == expected | {"fields": _by_number(expected["fields"])}


def test_enums_agree() -> None:
    ours = {
        f"{THEIRS}.{enum.name}": {
            "file": name,
            "values": [{"name": value.name, "number": value.number} for value in enum.value],
        }
        for name, file in FILES.items()
        for enum in file.enum_type
    }
    assert ours == CONTRACT["enums"]
    assert len(ours) == CONTRACT["counts"]["enums"]


def test_methods_agree_in_types_and_streaming() -> None:
    (service,) = FILES["openengine.proto"].service
    ours = {
        method.name: (
            _renamed(method.input_type),
            _renamed(method.output_type),
            method.client_streaming,
            method.server_streaming,
        )
        for method in service.method
    }
    assert list(CONTRACT["services"]) == [f"{THEIRS}.{service.name}"]
    assert ours == {
        m["name"]: (m["request"], m["response"], m["client_streaming"], m["server_streaming"])
        for m in CONTRACT["services"][f"{THEIRS}.OpenEngine"]["methods"]
    }
    assert len(ours) == CONTRACT["counts"]["methods"]


def test_method_paths_agree() -> None:
    expected = {m["path"] for m in CONTRACT["services"][f"{THEIRS}.OpenEngine"]["methods"]}
    assert {method.value for method in Method} == expected


@pytest.mark.parametrize(
    ("view", "original"),
    [
        (session_pb2.ResponseView, generation_pb2.GenerateResponse),
        (session_pb2.PrefillReadyView, generation_pb2.PrefillReady),
        (session_pb2.RequestView, generation_pb2.GenerateRequest),
        (session_pb2.KvOptionsView, generation_pb2.KvOptions),
    ],
)
def test_views_lie_over_the_messages_they_show(view: Any, original: Any) -> None:
    for field in view.DESCRIPTOR.fields:
        shown = original.DESCRIPTOR.fields_by_name[field.name]
        assert (field.number, field.has_presence) == (shown.number, shown.has_presence)
        assert field.type == shown.type or (field.type, shown.type) == (field.TYPE_BYTES, field.TYPE_MESSAGE)
