"""`openengine-sidecar serve`: one worker as a process, from configuration to exit code."""

from __future__ import annotations

import asyncio
import signal

from loguru import logger

from openengine_sidecar.actors.config import SidecarConfig
from openengine_sidecar.actors.discovery.model_files import read_model_files
from openengine_sidecar.actors.sidecar import Sidecar
from openengine_sidecar.launch import dump
from openengine_sidecar.messages.errors import SidecarError

FORCED_DRAIN = 1.0
EXIT_OK = 0
EXIT_FAILED = 1


def run(config: SidecarConfig) -> int:
    """Serve until a signal or a failure that supervision cannot mend.

    SIGTERM and SIGINT drain; a second one cuts the drain down to a second.

    Returns:
        0 after a drain in time, 128 + signal number after a forced one, 1 after a failure.
    """
    try:
        read_model_files(config.model.path, config.model.custom_template)
    except SidecarError as error:
        logger.critical("{}", error)
        return EXIT_FAILED
    return asyncio.run(_Worker(config).run())


class _Worker:
    def __init__(self, config: SidecarConfig) -> None:
        self._config = config
        self._signals: list[signal.Signals] = []
        self._draining: set[asyncio.Task[None]] = set()

    async def run(self) -> int:
        sidecar = Sidecar(self._config)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal, sidecar, number)
        dump.install(sidecar.system)
        try:
            await sidecar.start()
        except SidecarError as error:
            await asyncio.gather(*self._draining)
            if not self._signals:
                logger.critical("could not start: {}", error)
            return self._exit_code()
        cause = await sidecar.terminated()
        await asyncio.gather(*self._draining)
        if not self._signals:
            logger.critical("the worker gave up: {}", cause)
        return self._exit_code()

    def _on_signal(self, sidecar: Sidecar, number: signal.Signals) -> None:
        self._signals.append(number)
        forced = len(self._signals) > 1
        logger.info("{}: {}", number.name, "ending at once" if forced else "draining")
        drain = sidecar.drain(number.name, timeout=FORCED_DRAIN if forced else None)
        self._draining.add(asyncio.get_running_loop().create_task(drain))

    def _exit_code(self) -> int:
        if not self._signals:
            return EXIT_FAILED
        return EXIT_OK if len(self._signals) == 1 else 128 + self._signals[-1]
