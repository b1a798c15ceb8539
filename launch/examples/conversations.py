"""Some conversations at once through a frontend that routes by KV overlap, and a table of where each turn went.

`conversations.py URL MODEL` exits 1 unless most of what was said before was found in a cache.
"""

from __future__ import annotations

import json
import sys
import urllib.request
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

CONVERSATIONS = 6
TURNS = 4
OPENING = "This is conversation {number} about {topic}. "
TOPICS = ("rivers", "bridges", "lanterns", "orchards", "harbours", "clocks")


_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Turn(NamedTuple):
    """Where one turn went, and the part of its prompt, in percent, that the router believed to be cached there."""

    worker: int
    hit: float


class Conversation:
    """A chat that grows by a question and an answer each turn."""

    def __init__(self, url: str, model: str, number: int) -> None:
        topic = TOPICS[number % len(TOPICS)]
        self._url, self._model = url, model
        self._messages = [{"role": "system", "content": OPENING.format(number=number, topic=topic) * 6}]
        self.turns: list[Turn] = []

    def ask(self) -> None:
        """Take the next turn."""
        self._messages.append({"role": "user", "content": f"And what comes after that, {len(self.turns)}?"})
        reply = self._post({"messages": self._messages, "max_tokens": 32})
        self._messages.append({"role": "assistant", "content": reply["choices"][0]["message"]["content"]})
        told = reply["nvext"]
        self.turns.append(Turn(told["worker_id"]["decode_worker_id"], 100 * told["timing"]["kv_hit_rate"]))

    def _post(self, body: dict[str, Any]) -> dict[str, Any]:
        asked = {"model": self._model, "nvext": {"extra_fields": ["worker_id", "timing"]}, **body}
        request = urllib.request.Request(  # noqa: S310 - a URL of the user's own
            f"{self._url}/chat/completions", json.dumps(asked).encode(), {"Content-Type": "application/json"}
        )
        with _DIRECT.open(request, timeout=60) as reply:
            answer: dict[str, Any] = json.load(reply)
        return answer


def main(url: str, model: str) -> int:
    """Hold the conversations, print the table; returns the exit code."""
    conversations = [Conversation(url, model, number) for number in range(CONVERSATIONS)]
    with ThreadPoolExecutor(CONVERSATIONS) as pool:
        for _ in range(TURNS):
            list(pool.map(Conversation.ask, conversations))
    names = {worker: chr(ord("A") + n) for n, worker in enumerate(sorted(_load(conversations)))}
    sys.stdout.write("conversation" + "".join(f"    turn {turn + 1}" for turn in range(TURNS)) + "\n")
    for number, conversation in enumerate(conversations, 1):
        cells = (f"  {names[turn.worker]} {turn.hit:5.0f} %" for turn in conversation.turns)
        sys.stdout.write(f"{number:12}" + "".join(cells) + "\n")
    for worker, count in sorted(_load(conversations).items()):
        sys.stdout.write(f"worker {names[worker]} ({worker:x}) took {count} turns\n")
    later = [(before, turn) for c in conversations for before, turn in zip(c.turns, c.turns[1:], strict=False)]
    stayed = sum(before.worker == turn.worker for before, turn in later)
    hit = sum(turn.hit for _, turn in later) / len(later)
    sys.stdout.write(f"{stayed} of {len(later)} later turns went where the conversation was; hit rate {hit:.0f} %\n")
    return 0 if hit > 50 else 1  # noqa: PLR2004 - half


def _load(conversations: list[Conversation]) -> Counter[int]:
    return Counter(turn.worker for conversation in conversations for turn in conversation.turns)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
