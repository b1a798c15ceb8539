"""A worker process of its own, reduced to its discovery records.

`python owner.py ROOT INSTANCE_ID` publishes a card and an instance record and says so, tells every mishap, and leaves
when its standard input ends. `full` as third argument leaves it no room on the disk for a second card.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
from pathlib import Path

from openengine_sidecar.actors.config import FileDiscoveryConfig
from openengine_sidecar.actors.discovery.file_store import FileStore
from openengine_sidecar.actors.discovery.store import StoreReport
from openengine_sidecar.messages.dynamo.naming import EndpointId, card_key, instance_key
from openengine_sidecar.messages.errors import StoreError

ENDPOINT = EndpointId("dynamo", "backend", "generate")
ROOM = 64


def say(*words: str) -> None:
    sys.stdout.write(" ".join(words) + "\n")
    sys.stdout.flush()


def tell(report: StoreReport) -> None:
    say(report.mishap, report.key)


async def own(root: Path, instance_id: int, *, full: bool) -> None:
    store = FileStore(FileDiscoveryConfig(root=root, heartbeat=0.02), tell)
    await store.open()
    value = json.dumps({"instance_id": instance_id}).encode()
    try:
        await store.publish(instance_key(ENDPOINT, instance_id), value)
        if full:
            resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM, ROOM))
            value *= ROOM
        await store.publish(card_key(ENDPOINT, instance_id), value)
    except StoreError as error:
        say("refused", str(error))
    say("ready")
    await asyncio.to_thread(sys.stdin.read)
    await store.close()


if __name__ == "__main__":
    asyncio.run(own(Path(sys.argv[1]), int(sys.argv[2]), full="full" in sys.argv[3:]))
