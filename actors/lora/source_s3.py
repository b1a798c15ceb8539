"""Adapters in an S3 bucket. Needs the extra `s3`."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from typing import Any

from openengine_sidecar.actors.lora.cancel import CancelToken
from openengine_sidecar.actors.lora.config import AdapterLimits, TransferConfig
from openengine_sidecar.actors.lora.listing import Listing, ListingBuilder, RemoteFile
from openengine_sidecar.actors.lora.sources import Body, S3Place, is_transient, require
from openengine_sidecar.messages.errors import LoraSourceError
from openengine_sidecar.proto.text import peer_text

EXTRA = "s3"
_PARTIAL = 206
_CHANGED = 412


class S3Source:
    """All objects under a prefix; credentials, region and proxies are found where boto3 looks for them.

    boto3's own retries are off: they could not be cancelled.
    """

    def __init__(self, place: S3Place, address: str, config: TransferConfig) -> None:
        self._place = place
        self._address = address
        self._config = config
        self._errors: Any = require("botocore.exceptions", EXTRA, address)
        self._client: Any = self._connect()

    def list(self, limits: AdapterLimits, cancel: CancelToken) -> Listing:
        """List the objects, page by page; see Source."""
        builder = ListingBuilder(self._address, limits)
        prefix = f"{self._place.prefix}/"
        with self._failures():
            pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self._place.bucket, Prefix=prefix)
            for page in pages:
                cancel.check()
                for found in page.get("Contents", ()):
                    key, size = str(found["Key"]), int(found["Size"])
                    if not (key.endswith("/") and size == 0):  # how consoles show a directory
                        path = key.removeprefix(prefix)
                        builder.add(RemoteFile(path=path, size=size, key=key, tag=str(found["ETag"])))
        return builder.build()

    @contextmanager
    def read(self, file: RemoteFile, offset: int) -> Generator[Body]:
        """Read the very object that was listed; see Source."""
        with self._failures():
            found = self._client.get_object(
                Bucket=self._place.bucket, Key=file.key, IfMatch=file.tag, Range=f"bytes={offset}-"
            )
            begins = offset if found["ResponseMetadata"]["HTTPStatusCode"] == _PARTIAL else 0
            with closing(found["Body"]) as body:
                yield Body(begins, self._chunks(body))

    def _chunks(self, body: Any) -> Iterator[bytes]:
        with self._failures():
            yield from body.iter_chunks(self._config.chunk_bytes)

    def _connect(self) -> Any:
        boto3 = require("boto3", EXTRA, self._address)
        options: dict[str, Any] = {
            "connect_timeout": self._config.connect_timeout,
            "read_timeout": self._config.read_timeout,
            "retries": {"total_max_attempts": 1},
        }
        if self._config.s3_endpoint is not None:
            options["s3"] = {"addressing_style": "path"}  # what is not AWS seldom has a name per bucket
        settings = require("botocore.config", EXTRA, self._address).Config(**options)
        with self._failures():
            try:
                return boto3.session.Session().client("s3", endpoint_url=self._config.s3_endpoint, config=settings)
            except ValueError as error:  # botocore's word for an endpoint that is no URL
                raise self._failure(str(error), transient=False) from error

    @contextmanager
    def _failures(self) -> Generator[None]:
        errors = self._errors
        try:
            yield
        except errors.ClientError as error:
            raise self._refusal(error) from error
        except errors.BotoCoreError as error:
            lost = (errors.ConnectionError, errors.HTTPClientError, errors.IncompleteReadError)
            raise self._failure(str(error), transient=isinstance(error, lost)) from error

    def _refusal(self, error: Any) -> LoraSourceError:
        status = int(error.response["ResponseMetadata"]["HTTPStatusCode"])
        if status == _CHANGED:
            return self._failure("it was changed while it was being fetched", transient=False)
        return self._failure(f"HTTP {status}: {error}", transient=is_transient(status))

    def _failure(self, problem: str, *, transient: bool) -> LoraSourceError:
        return LoraSourceError(self._address, peer_text(problem), transient=transient)
