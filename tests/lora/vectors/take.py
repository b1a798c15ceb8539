"""Writes lora_ids.json anew: `python take.py`, where ai-dynamo-runtime is installed."""

from __future__ import annotations

import json
from pathlib import Path

from dynamo.llm import lora_name_to_id

NAMES = [
    "",
    "a",
    "my/lora-A",
    "_My/lora-A",
    "org/name@main",
    "a b\n\x00",
    "é",
    "模型",
    "🦙",
    "x" * 300,
    "x" * 3000,  # more than one chunk of the hash
    "z5837959097",  # the hash gives 0
    "z6024431574",
    "adapter-36748",  # these two share their id
    "adapter-51988",
    *(f"adapter-{number}" for number in range(32)),
]

if __name__ == "__main__":
    ids = {name: lora_name_to_id(name) for name in NAMES}
    Path(__file__).with_name("lora_ids.json").write_text(json.dumps(ids, indent=1, ensure_ascii=True) + "\n")
