"""Connections that came back, told from facts. Pure."""

from __future__ import annotations

from openengine_sidecar.messages.facts import EngineDown, EngineUp, EventPlaneState, PlaneState


class Reconnects:
    """Remembers which connections were there, and went."""

    def __init__(self) -> None:
        self._connected: dict[str, bool] = {}

    def observe(self, fact: object) -> str | None:
        """Take a fact in; the name of the connection that came back by it, if one did."""
        match fact:
            case EngineUp():
                return self._state("engine", connected=True)
            case EngineDown():
                return self._state("engine", connected=not fact.lost)
            case PlaneState():
                return self._state("request_plane", connected=fact.connected)
            case EventPlaneState():
                return self._state("event_plane", connected=fact.connected)
            case _:
                return None

    def _state(self, name: str, *, connected: bool) -> str | None:
        before = self._connected.get(name)
        if connected or before is not None:  # what never was there has not gone either
            self._connected[name] = connected
        return name if connected and before is False else None
