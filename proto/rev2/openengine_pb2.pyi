from openengine_sidecar.proto.rev2 import classification_pb2 as _classification_pb2
from openengine_sidecar.proto.rev2 import embedding_pb2 as _embedding_pb2
from openengine_sidecar.proto.rev2 import engine_pb2 as _engine_pb2
from openengine_sidecar.proto.rev2 import generation_pb2 as _generation_pb2
from openengine_sidecar.proto.rev2 import kv_pb2 as _kv_pb2
from openengine_sidecar.proto.rev2 import lifecycle_pb2 as _lifecycle_pb2
from openengine_sidecar.proto.rev2 import lora_pb2 as _lora_pb2
from openengine_sidecar.proto.rev2 import model_pb2 as _model_pb2
from openengine_sidecar.proto.rev2 import observability_pb2 as _observability_pb2
from openengine_sidecar.proto.rev2 import scoring_pb2 as _scoring_pb2
from google.protobuf import descriptor as _descriptor
from typing import ClassVar as _ClassVar

DESCRIPTOR: _descriptor.FileDescriptor
