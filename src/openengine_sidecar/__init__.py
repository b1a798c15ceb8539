"""A GPU-less NVIDIA Dynamo worker for engines that serve the OpenEngine gRPC contract."""

__version__ = "0.1.0"
