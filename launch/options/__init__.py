"""Every setting of `serve`, as one table."""

from __future__ import annotations

from openengine_sidecar.launch.options.lora import LORA
from openengine_sidecar.launch.options.operation import OPERATION
from openengine_sidecar.launch.options.setting import Setting
from openengine_sidecar.launch.options.worker import WORKER

SERVE_SETTINGS: tuple[Setting, ...] = WORKER + LORA + OPERATION
