"""Discovery: where this worker's records stand, and what its model card says."""
