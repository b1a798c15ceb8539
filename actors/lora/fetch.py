"""From an address to a directory that the engine can be sent to."""

from __future__ import annotations

from pathlib import Path

import msgspec

from openengine_sidecar.actors.lora.cache import AdapterCache, Lease, Recipe
from openengine_sidecar.actors.lora.cancel import CancelToken
from openengine_sidecar.actors.lora.config import LoraConfig
from openengine_sidecar.actors.lora.download import Errand, ReportProgress, download, persist
from openengine_sidecar.actors.lora.listing import Listing
from openengine_sidecar.actors.lora.source_hub import HubSource
from openengine_sidecar.actors.lora.source_s3 import S3Source
from openengine_sidecar.actors.lora.sources import HubPlace, LocalPlace, S3Place, Source, parse_address
from openengine_sidecar.actors.lora.verify import Contents, verify
from openengine_sidecar.messages.errors import LoraRefusedError


class FetchedAdapter(msgspec.Struct, frozen=True):
    """An adapter that lies where an engine can read it; `lease` keeps it there, and is None for one used in place."""

    path: Path
    contents: Contents
    lease: Lease | None = None


class Fetcher:
    """Fetches adapters into a cache, where there is one; blocks, and may be used by many threads."""

    def __init__(self, config: LoraConfig, cache: AdapterCache | None) -> None:
        self._config = config
        self._cache = cache

    def fetch(self, address: str, cancel: CancelToken, report: ReportProgress) -> FetchedAdapter:
        """Bring an adapter near, unless it is, and check it.

        Args:
            address: see `parse_address`.
            cancel: looked at between chunks, and in every pause.
            report: called after every chunk; not at all where nothing had to be fetched.

        Raises:
            LoraRefusedError: the address, or what lies there, is not acceptable.
            LoraSourceError: the source cannot be read.
            LoraCacheError: the cache has no room, or its file system refused.
            LoraCancelledError: nobody wants it any more.
        """
        place, limits = parse_address(address), self._config.limits
        if isinstance(place, LocalPlace):
            path = Path(place.path)
            return FetchedAdapter(path, verify(path, limits, address))
        if self._cache is None:
            raise LoraRefusedError(address, "there is no cache to fetch it into")
        errand = Errand(self._config.transfer, cancel, report)
        source = self._open(place, address)
        listing = persist(lambda: source.list(limits, cancel), errand)

        def fill(directory: Path) -> None:
            download(source, listing, directory, errand)
            verify(directory, limits, address)

        recipe = Recipe(size=listing.size, fill=fill, intact=lambda path: self._intact(path, listing))
        lease = self._cache.acquire(listing.key(address), recipe, cancel)
        return FetchedAdapter(lease.path, Contents(len(listing.files), listing.size), lease)

    def _open(self, place: S3Place | HubPlace, address: str) -> Source:
        if isinstance(place, S3Place):
            return S3Source(place, address, self._config.transfer)
        return HubSource(place, address, self._config.transfer)

    def _intact(self, path: Path, listing: Listing) -> bool:
        """Whether an entry is there, and nobody tampered with it or cut it short."""
        try:
            return verify(path, self._config.limits, str(path)) == Contents(len(listing.files), listing.size)
        except LoraRefusedError:
            return False
