"""The model hub, by huggingface_hub alone; each way in which it fails is one line without the token.

Files come by plain HTTP from the hub's resolve address, not by Xet: only there can a download that broke off go on in another process.
"""

import io
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import httpx
from huggingface_hub import HfApi, hf_hub_url
from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.file_download import http_get
from huggingface_hub.hf_api import RepoFile
from huggingface_hub.utils import (  # type: ignore[attr-defined]
    build_hf_headers,
    disable_progress_bars,
    filter_repo_objects,
)
from huggingface_hub.utils import logging as hub_logging

from kit import __version__
from kit.asset import Asset
from kit.errors import EnvironmentFault, ImageFault, KitError, UsageFault

TOKEN_VARIABLE = "HF_TOKEN"
_COMMIT = re.compile(r"[0-9a-f]{40}")
_TOKEN = re.compile(r"[\x21-\x7e]+")
_REFUSED = (401, 403)
_RANGE_NOT_SATISFIABLE = 416
_BUFFER = 1 << 20


@dataclass(frozen=True)
class RemoteFile:
    """A file of a repository at one commit.

    Attributes:
        path: in the repository. size: in bytes.
        sha256: hex, where the hub tells it (LFS); else None.
        blob_id: git's object id.
    """

    path: str
    size: int
    sha256: str | None
    blob_id: str


class Hub:
    """A hub. The endpoint is the library's (``HF_ENDPOINT``), the token comes from ``HF_TOKEN`` and from nowhere else.

    Args:
        endpoint: another endpoint than the library's.

    Raises:
        UsageFault: HF_TOKEN holds what no HTTP header can carry.
    """

    def __init__(self, endpoint: str | None = None) -> None:
        token = os.environ.get(TOKEN_VARIABLE, "").strip()
        if token and not _TOKEN.fullmatch(token):
            raise UsageFault(f"{TOKEN_VARIABLE} holds signs that no token has", "set it anew")
        hub_logging.set_verbosity_error()  # type: ignore[no-untyped-call]
        disable_progress_bars()
        self._token: str | Literal[False] = token or False
        self._api = HfApi(endpoint=endpoint, token=self._token, library_name="kit", library_version=__version__)

    def commit(self, asset: Asset, revision: str) -> str:
        """The commit (40 hex digits) that a branch, tag or commit of the asset's repository stands for now.

        Raises:
            KitError: no such revision or repository, no access, or no network.
        """
        with self._faults(asset, revision), _answers():
            commit = self._api.repo_info(asset.repository, repo_type=asset.type, revision=revision).sha
            if commit is None or not _COMMIT.fullmatch(commit):
                raise ValueError(commit)
            return commit

    def files(self, asset: Asset, commit: str) -> tuple[RemoteFile, ...]:
        """The asset's files at a commit, sorted by path.

        Raises:
            KitError: as `commit`.
        """
        with self._faults(asset, commit), _answers():
            tree = self._api.list_repo_tree(asset.repository, recursive=True, revision=commit, repo_type=asset.type)
            found = [
                RemoteFile(entry.path, entry.size, entry.lfs.sha256 if entry.lfs else None, entry.blob_id)
                for entry in tree
                if isinstance(entry, RepoFile)
            ]
        wanted = filter_repo_objects(found, allow_patterns=list(asset.allow), key=lambda file: file.path)
        return tuple(sorted(wanted, key=lambda file: file.path))

    def download(
        self,
        asset: Asset,
        commit: str,
        path: str,
        size: int,
        part: Path,
        advance: Callable[[int], None],
    ) -> bool:
        """Get a file into `part`, going on after the bytes that are there already.

        Args:
            size: bytes that the file must have.
            advance: told of every change of the part's length, in bytes; what it raises ends the download.

        Returns:
            Whether `part` has `size` bytes now; False: the hub's file is shorter or longer.

        Raises:
            KitError: no access, no such file, or the connection broke; what came is kept.
            OSError: `part` cannot be written.
        """
        url = hf_hub_url(asset.repository, path, repo_type=asset.type, revision=commit, endpoint=self._api.endpoint)
        headers = build_hf_headers(token=self._token, library_name="kit", library_version=__version__)
        headers["Accept-Encoding"] = "identity"  # a position to go on from has a meaning in the plain bytes only
        with _Part(part, size, advance) as file, self._faults(asset, commit, path), _answers():
            try:
                http_get(url, file, resume_size=file.tell(), headers=headers, displayed_filename=path)
            except _TooLong:
                return False
            except HfHubHTTPError as error:
                if error.response.status_code != _RANGE_NOT_SATISFIABLE:
                    raise
                return False
            except OSError as error:
                if error.errno is not None or isinstance(error, OfflineModeIsEnabled):
                    raise
                raise httpx.ReadError("fewer bytes than the answer announced") from None
            return file.tell() == size

    @contextmanager
    def _faults(self, asset: Asset, revision: str, path: str = "") -> Iterator[None]:
        """Turn what the library raises into faults; its own texts may quote the server, so none of them is repeated."""
        try:
            yield
        except OfflineModeIsEnabled:
            raise EnvironmentFault(
                "HF_HUB_OFFLINE forbids to ask the hub", "unset it, or carry the cache over"
            ) from None
        except HfHubHTTPError as error:
            raise self._answer_fault(asset, revision, path, error) from None
        except (httpx.HTTPError, httpx.InvalidURL):
            host = urlsplit(self._api.endpoint).hostname
            raise EnvironmentFault(
                f"the hub ({host}) cannot be reached, or the connection broke",
                "check network, proxy and HF_ENDPOINT, then run this again: it goes on where it stopped",
            ) from None

    def _answer_fault(self, asset: Asset, revision: str, path: str, error: HfHubHTTPError) -> KitError:
        where = f"{asset.type} {asset.repository}"
        status = error.response.status_code
        lock_again = f"correct profiles/assets.toml, or run 'kit assets lock {asset.name}'"
        if isinstance(error, RevisionNotFoundError):
            return ImageFault(f"{where} has no revision '{revision}'", lock_again)
        if isinstance(error, EntryNotFoundError):
            return ImageFault(f"{where} has no file {path} at revision {revision}", lock_again)
        asked = f"with the token in {TOKEN_VARIABLE}" if self._token else f"without {TOKEN_VARIABLE}"
        refused = status in _REFUSED or isinstance(error, RepositoryNotFoundError)
        if isinstance(error, GatedRepoError) or (refused and asset.gated):
            return ImageFault(
                f"{where} is gated, and the hub does not give it {asked} ({status})",
                f"accept the licence on the page of {asset.repository} and set {TOKEN_VARIABLE} to a token of that account",
            )
        if refused:
            return ImageFault(
                f"the hub knows no {where}, or does not show it {asked} ({status})",
                f"correct profiles/assets.toml, or set {TOKEN_VARIABLE} to a token that may see it",
            )
        return EnvironmentFault(f"the hub answers {status} for {where}", "try again later")


class _TooLong(Exception):
    """The server sends more than the file may have."""


class _Part(io.BufferedWriter):
    """A file that is being downloaded, open at its end. It takes no byte beyond `size`, and tells of its growth."""

    def __init__(self, path: Path, size: int, advance: Callable[[int], None]) -> None:
        super().__init__(io.FileIO(path, "r+b" if path.exists() else "w+b"), _BUFFER)
        self._size, self._advance = size, advance
        self.seek(0, os.SEEK_END)

    def write(self, data: "bytes | bytearray | memoryview") -> int:  # type: ignore[override]
        """Append a block."""
        if self.tell() + len(data) > self._size:
            raise _TooLong
        written = super().write(data)
        self._advance(written)
        return written

    def truncate(self, size: int | None = None) -> int:
        """Cut; the library does it where a server ignores the position that was asked for."""
        self.flush()
        before = os.fstat(self.fileno()).st_size
        now = super().truncate(size)
        self._advance(now - before)
        return now


@contextmanager
def _answers() -> Iterator[None]:
    """What is no answer of a hub, such as a login page, is a fault of the network."""
    try:
        yield
    except (HfHubHTTPError, KitError, OfflineModeIsEnabled):
        raise
    except (ValueError, KeyError, TypeError):
        raise EnvironmentFault(
            "what answers there does not speak the hub's language", "check HF_ENDPOINT and the proxy"
        ) from None
