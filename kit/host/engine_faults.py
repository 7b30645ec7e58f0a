"""Turns what a container engine refuses, or no longer answers, into one line."""

import contextlib
from collections.abc import Iterator

import docker
import requests
from docker.errors import APIError, BuildError, DockerException

from kit.errors import EnvironmentFault, ImageFault, is_disk_full
from kit.paths import cache_folder

_PATIENCE_SECONDS = 3600


def engine_says(error: object) -> str:
    """An engine's own words on one line, without the address that was asked."""
    return " ".join(str(getattr(error, "explanation", None) or error).split())[:300]


@contextlib.contextmanager
def patient(client: "docker.DockerClient") -> Iterator[None]:
    """Give the engine an hour for each answer: what moves whole images takes minutes on a busy disk."""
    usual = client.api.timeout
    client.api.timeout = _PATIENCE_SECONDS
    try:
        yield
    finally:
        client.api.timeout = usual


@contextlib.contextmanager
def engine_faults() -> Iterator[None]:
    """Turn what goes wrong with an engine, or with a file that it is given, into a `KitError`.

    Raises:
        ImageFault: the engine refused. EnvironmentFault: it stopped answering, or a file or disk failed.
    """
    try:
        yield
    except (APIError, BuildError) as error:
        raise ImageFault(f"the engine refused: {engine_says(error)}", "see the message") from None
    except (DockerException, requests.RequestException) as error:
        raise EnvironmentFault(
            f"the engine stopped answering: {engine_says(error)}", "see its log, then try again"
        ) from None
    except OSError as error:
        where = error.filename or cache_folder()
        remedy = "free space" if is_disk_full(error) else "check permissions and free space"
        raise EnvironmentFault(f"{where}: {error.strerror}", remedy) from None
