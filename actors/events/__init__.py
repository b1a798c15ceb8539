"""Dynamo's event plane: what this worker tells whoever listens, without being asked."""
