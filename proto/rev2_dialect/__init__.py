"""OpenEngine revision 2, spoken through its own stubs (`openengine_sidecar.proto.rev2`)."""

from openengine_sidecar.proto.rev2_dialect.dialect import Revision2
from openengine_sidecar.proto.rev2_dialect.methods import Method

__all__ = ["Method", "Revision2"]
