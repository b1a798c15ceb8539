from __future__ import annotations

import pytest


@pytest.fixture
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    from openengine_sidecar.launch.options import SERVE_SETTINGS  # noqa: PLC0415 - other tests of launch need none of it

    for setting in SERVE_SETTINGS:
        for variable in setting.variables:
            monkeypatch.delenv(variable, raising=False)
    monkeypatch.delenv("NO_COLOR", raising=False)
