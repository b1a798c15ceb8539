"""What people and probes are told: liveness, readiness, metrics, the actor tree."""
