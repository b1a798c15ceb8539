"""A worker process of its own that fetches one adapter: `python fetching.py CACHE S3_ENDPOINT ADDRESS`."""

from __future__ import annotations

import sys
from pathlib import Path

from openengine_sidecar.actors.lora.cache import AdapterCache
from openengine_sidecar.actors.lora.cancel import CancelToken
from openengine_sidecar.actors.lora.config import LoraConfig, TransferConfig
from openengine_sidecar.actors.lora.fetch import Fetcher

if __name__ == "__main__":
    root, endpoint, address = sys.argv[1:]
    config = LoraConfig(cache=Path(root), transfer=TransferConfig(s3_endpoint=endpoint))
    cache = AdapterCache(config.cache)
    cache.open()
    fetched = Fetcher(config, cache).fetch(address, CancelToken(address), lambda _progress: None)
    sys.stdout.write(f"{fetched.path}\n")
