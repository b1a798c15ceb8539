"""One fetch on a thread of its own: fetching blocks, and several adapters are fetched at once."""

from __future__ import annotations

import msgspec

from openengine_sidecar.actors.lora.cancel import CancelToken
from openengine_sidecar.actors.lora.download import Progress
from openengine_sidecar.actors.lora.fetch import FetchedAdapter, Fetcher
from openengine_sidecar.messages.errors import LoraError
from openengine_sidecar.supervision import ThreadActor

_STEPS = 10


class FetchAdapter(msgspec.Struct, frozen=True):
    """Asked: fetch from an address. Answers a FetchedAdapter, or the LoraError that was in the way."""

    address: str


class AdapterFetch(ThreadActor[FetchAdapter]):
    """Fetches one adapter; progress goes to the log.

    Args:
        fetcher: does it.
        cancel: the order to stop; given too when this actor is to give up.
    """

    def __init__(self, fetcher: Fetcher, cancel: CancelToken) -> None:
        super().__init__()
        self._fetcher = fetcher
        self._cancel = cancel
        self._logged = 0

    def on_message(self, message: FetchAdapter) -> FetchedAdapter | LoraError:
        """Fetch."""
        self.log = self.log.bind(address=message.address)
        try:
            return self._wanted(self._fetcher.fetch(message.address, self._cancel, self._report))
        except LoraError as error:
            return error

    def _wanted(self, fetched: FetchedAdapter) -> FetchedAdapter:
        """Nobody may be left to give a lease back."""
        try:
            self._cancel.check()
        except LoraError:
            if fetched.lease is not None:
                fetched.lease.release()
            raise
        return fetched

    def _report(self, progress: Progress) -> None:
        if self.cancelled.is_set():
            self._cancel.cancel("the worker gives it up")
        step = progress.size * _STEPS // max(progress.total_size, 1)
        if step > self._logged:
            self._logged = step
            done, total = progress.size, progress.total_size
            self.log.info("fetched {} of {} bytes, {} of {} files", done, total, progress.files, progress.total_files)
