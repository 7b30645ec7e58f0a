"""An image on its way to others: as one file, and through a real registry."""

import hashlib
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest
import zstandard

from kit.errors import ImageFault, UsageFault
from kit.host import image_archive
from kit.host.image_archive import load_image, save_image, sums_file
from kit.host.image_build import BuildOptions, build_image
from kit.host.image_lock import registry_digest, write_base_digest
from kit.host.image_push import push_image
from kit.host.image_store import BuiltImage
from kit.host.image_verify import verify_image
from kit.image import ImageDefinition, find_image
from tests.docker.conftest import BASE
from tests.docker.tiny import NAME, SOURCES, isolate, remove_all, tiny, use_sources

pytestmark = pytest.mark.docker
REGISTRY = """version: 0.1
storage: {{filesystem: {{rootdirectory: {root}}}}}
http: {{addr: '127.0.0.1:{port}'}}
"""


@pytest.fixture(scope="module", autouse=True)
def isolated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        isolate(patch, tmp_path_factory.mktemp("cache"))
        patch.setattr(image_archive, "source_files", lambda: SOURCES)
        yield


@pytest.fixture(scope="module")
def definition(isolated: None, tmp_path_factory: pytest.TempPathFactory) -> ImageDefinition:
    return tiny(tmp_path_factory.mktemp("images"))


@pytest.fixture(scope="module")
def built(client: docker.DockerClient, definition: ImageDefinition) -> Iterator[BuiltImage]:
    yield build_image(client, definition, BuildOptions(base=BASE), lambda _: None)
    remove_all(client, NAME)


@pytest.fixture(scope="module")
def archive(
    client: docker.DockerClient,
    definition: ImageDefinition,
    built: BuiltImage,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    path = tmp_path_factory.mktemp("archive") / "tiny.tar.zst"
    save_image(client, definition, path)
    return path


def test_what_is_loaded_is_what_was_saved(
    client: docker.DockerClient, definition: ImageDefinition, built: BuiltImage, archive: Path
) -> None:
    assert subprocess.run(["sha256sum", "-c", sums_file(archive).name], cwd=archive.parent).returncode == 0
    client.images.remove(definition.tag)
    client.images.remove(built.tag)
    assert load_image(client, definition, archive) == built
    assert client.images.get(definition.tag).id == built.id
    assert verify_image(client, definition).findings == []


def test_nothing_is_overwritten(client: docker.DockerClient, definition: ImageDefinition, archive: Path) -> None:
    with pytest.raises(UsageFault, match="exists; name another file"):
        save_image(client, definition, archive)
    assert sorted(path.name for path in archive.parent.iterdir()) == ["tiny.tar.zst", "tiny.tar.zst.sha256"]


def test_a_damaged_archive_is_refused(
    client: docker.DockerClient, definition: ImageDefinition, archive: Path, tmp_path: Path
) -> None:
    copy = tmp_path / archive.name
    shutil.copy(archive, copy)
    shutil.copy(sums_file(archive), sums_file(copy))
    with copy.open("r+b") as file:
        file.seek(copy.stat().st_size // 2)
        file.write(b"\xff\x00\xff")
    with pytest.raises(ImageFault, match="is damaged: its SHA-256 is not the one in tiny"):
        load_image(client, definition, copy)


def test_the_checksum_of_another_file_is_refused(
    client: docker.DockerClient, definition: ImageDefinition, archive: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "other.tar.zst"
    shutil.copy(archive, copy)
    with pytest.raises(UsageFault, match=r"other\.tar\.zst\.sha256 is not there"):
        load_image(client, definition, copy)
    shutil.copy(sums_file(archive), sums_file(copy))
    with pytest.raises(ImageFault, match=r"is of tiny\.tar\.zst, not of other\.tar\.zst"):
        load_image(client, definition, copy)


def test_what_is_no_image_is_refused(client: docker.DockerClient, definition: ImageDefinition, tmp_path: Path) -> None:
    for content in (b"nothing", zstandard.compress(b"nothing")):
        path = tmp_path / "x.tar.zst"
        path.write_bytes(content)
        sums_file(path).write_text(f"{hashlib.sha256(content).hexdigest()}  {path.name}\n")
        with pytest.raises(ImageFault, match="is no image that 'kit images save' has written"):
            load_image(client, definition, path)


def test_the_image_of_another_kit_is_refused(
    client: docker.DockerClient, definition: ImageDefinition, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_sources(monkeypatch, SOURCES | {"errors.py": b""})
    monkeypatch.setattr(image_archive, "source_files", lambda: SOURCES | {"errors.py": b""})
    before = {image.id for image in client.images.list(f"kit-{NAME}")}
    with pytest.raises(ImageFault, match=f"holds image {NAME}: kit's own sources differ from this kit's"):
        load_image(client, definition, archive)
    assert {image.id for image in client.images.list(f"kit-{NAME}")} == before


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real registry on a port of this machine."""
    if shutil.which("docker-registry") is None:
        pytest.skip("no docker-registry on this machine (Debian: apt-get install docker-registry)")
    folder = tmp_path_factory.mktemp("registry")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (folder / "config.yml").write_text(REGISTRY.format(root=folder / "data", port=port))
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(["docker-registry", "serve", str(folder / "config.yml")], stdout=log, stderr=log)
    try:
        for _ in range(100):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/", timeout=1).close()
                break
            except OSError:
                time.sleep(0.1)
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(10)


def test_a_pushed_image_is_pulled_by_its_digest(
    client: docker.DockerClient, definition: ImageDefinition, built: BuiltImage, registry: str
) -> None:
    said: list[str] = []
    reference = push_image(client, definition, f"{registry}/lab/{NAME}", said.append)
    assert reference.startswith(f"{registry}/lab/{NAME}@sha256:")
    assert said == [f"pushed: {registry}/lab/{NAME}:{built.tag.rpartition(':')[2]}"]
    assert (
        registry_digest(client, f"{registry}/lab/{NAME}:{built.tag.rpartition(':')[2]}") == reference.partition("@")[2]
    )
    pulled = client.images.pull(*reference.split("@"))
    assert pulled.id == built.id
    client.images.remove(reference)


def test_a_registry_that_is_not_there_is_one_line(
    client: docker.DockerClient, definition: ImageDefinition, built: BuiltImage
) -> None:
    with pytest.raises(ImageFault, match="could not be pushed") as caught:
        push_image(client, definition, "127.0.0.1:1/lab/none", lambda _: None)
    assert "\n" not in str(caught.value)


def test_a_base_is_locked_by_the_digest_of_its_registry_and_built_on(
    client: docker.DockerClient, registry: str, tmp_path: Path
) -> None:
    repository = f"{registry}/bases/debian"
    client.images.get(BASE).tag(repository, "12")
    client.images.push(repository, tag="12")
    client.images.remove(f"{repository}:12")
    name = f"{NAME}-pinned"
    path = tiny(tmp_path, name=name, base=f"{repository}:12").path
    digest = registry_digest(client, f"{repository}:12")
    assert write_base_digest(path, digest)
    definition = find_image(name, tmp_path)
    assert definition.base_reference == f"{repository}@{digest}"
    try:
        built = build_image(client, definition, BuildOptions(), lambda _: None)
        assert built.base_is_pinned
        assert built.labels["org.opencontainers.image.base.digest"] == digest
        assert built.labels["org.opencontainers.image.base.name"] == f"{repository}:12"
        verified = verify_image(client, definition)
        assert (verified.findings, verified.not_checked) == ([], [])
    finally:
        remove_all(client, name)
        client.images.remove(definition.base_reference)
