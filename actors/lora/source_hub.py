"""Adapters in a repository of the Hugging Face hub, or of a mirror. Needs the extra `hf`."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

from openengine_sidecar.actors.lora.cancel import CancelToken
from openengine_sidecar.actors.lora.config import AdapterLimits, TransferConfig
from openengine_sidecar.actors.lora.listing import Listing, ListingBuilder, RemoteFile
from openengine_sidecar.actors.lora.sources import Body, HubPlace, is_transient, require
from openengine_sidecar.messages.errors import LoraSourceError
from openengine_sidecar.proto.text import peer_text

EXTRA = "hf"
_PARTIAL = 206


class HubSource:
    """One commit of a model repository; the token and the hub are those that huggingface_hub finds."""

    def __init__(self, place: HubPlace, address: str, config: TransferConfig) -> None:
        self._place = place
        self._address = address
        self._config = config
        self._hub: Any = require("huggingface_hub", EXTRA, address)
        self._errors: Any = require("huggingface_hub.errors", EXTRA, address)
        self._api: Any = self._hub.HfApi(endpoint=config.hub_endpoint)
        self._commit = ""

    def list(self, limits: AdapterLimits, cancel: CancelToken) -> Listing:
        """List the files of the revision's commit; see Source."""
        builder = ListingBuilder(self._address, limits)
        repo, timeout = self._place.repo, self._config.read_timeout
        with self._failures():
            self._commit = str(
                self._api.model_info(repo, revision=self._place.revision, expand=["sha"], timeout=timeout).sha
            )
            for found in self._api.list_repo_tree(repo, revision=self._commit, recursive=True):
                cancel.check()
                if isinstance(found, self._hub.RepoFile):
                    builder.add(_remote_file(found))
        return builder.build()

    @contextmanager
    def read(self, file: RemoteFile, offset: int) -> Generator[Body]:
        """Read the file as it is in the commit that was listed; see Source."""
        utils = self._hub.utils
        url = self._hub.hf_hub_url(
            self._place.repo, file.key, revision=self._commit, endpoint=self._config.hub_endpoint
        )
        headers = {**utils.build_hf_headers(), "Accept-Encoding": "identity", "Range": f"bytes={offset}-"}
        with self._failures():
            session = utils.get_session()
            with session.stream(
                "GET", url, headers=headers, timeout=self._config.read_timeout, follow_redirects=True
            ) as response:
                utils.hf_raise_for_status(response)
                begins = offset if response.status_code == _PARTIAL else 0
                yield Body(begins, self._chunks(response))

    def _chunks(self, response: Any) -> Iterator[bytes]:
        with self._failures():
            yield from response.iter_bytes()  # as they come: what a larger chunk lacks is lost with its connection

    @contextmanager
    def _failures(self) -> Generator[None]:
        errors = self._errors
        try:
            yield
        except errors.HfHubHTTPError as error:
            raise self._failure(str(error), transient=is_transient(int(error.response.status_code))) from error
        except errors.HTTPError as error:  # the base of what the HTTP library of this huggingface_hub raises
            raise self._failure(repr(error), transient=True) from error
        except (errors.HFValidationError, errors.OfflineModeIsEnabled) as error:
            raise self._failure(str(error), transient=False) from error

    def _failure(self, problem: str, *, transient: bool) -> LoraSourceError:
        return LoraSourceError(self._address, peer_text(problem), transient=transient)


def _remote_file(found: Any) -> RemoteFile:
    """Large files come with the hash of their contents."""
    sha256 = "" if found.lfs is None else str(found.lfs.sha256)
    return RemoteFile(
        path=str(found.path), size=int(found.size), key=str(found.path), tag=str(found.blob_id), sha256=sha256
    )
