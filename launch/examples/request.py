"""An HTTP request from the examples' shell.

`request.py URL` gets, `request.py URL -` posts JSON from standard input, `request.py URL "" DELETE` deletes.
"""

from __future__ import annotations

import sys
import urllib.error
import urllib.request

_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def main(url: str, body: str = "", method: str | None = None) -> int:
    """Print the answer; returns 1 for an error status."""
    data = sys.stdin.buffer.read() if body else None
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, data=data, headers=headers, method=method)  # noqa: S310 - ours
    try:
        with _DIRECT.open(request, timeout=60) as reply:
            sys.stdout.write(reply.read().decode())
    except urllib.error.URLError as error:
        detail = error.read().decode() if isinstance(error, urllib.error.HTTPError) else str(error)
        sys.stderr.write(f"{url}: {detail}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
