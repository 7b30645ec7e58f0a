"""Images built by a real engine from a tiny lock: what goes in, what stays out, and which image is recognised."""

import io
import tarfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import docker
import pytest

from kit.errors import ExitCode, ImageFault
from kit.host import image_store
from kit.host.image_build import BuildOptions, build_image
from kit.host.image_store import BuiltImage, check_image, leftovers, remove
from kit.image import ImageDefinition, definition_digest, lock_digest, source_digest
from kit.paths import cache_folder
from tests.docker.conftest import BASE
from tests.docker.tiny import NAME, SOURCES, STACK_TAG, TAG, isolate, remove_all, tiny, use_sources

pytestmark = pytest.mark.docker

DOCKERFILES = ["Dockerfile.cpu", "Dockerfile.cuda", "Dockerfile.rocm"]
STRICT = {
    "network_mode": "none",
    "read_only": True,
    "cap_drop": ["ALL"],
    "security_opt": ["no-new-privileges"],
    "tmpfs": {"/tmp": "mode=1777,exec"},
    "user": "54321:54321",
    "remove": True,
    "stderr": True,
}


@pytest.fixture(autouse=True)
def isolated(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    isolate(monkeypatch, tmp_path_factory.mktemp("cache"))


@pytest.fixture
def no_tag_left(client: docker.DockerClient) -> Iterator[None]:
    yield
    remove_all(client, NAME)


@dataclass(frozen=True)
class Tiny:
    """A built tiny image, its definition, and what the build said."""

    definition: ImageDefinition
    built: BuiltImage
    said: list[str]
    cache: Path


@pytest.fixture(scope="module", params=DOCKERFILES)
def stack(
    request: pytest.FixtureRequest, client: docker.DockerClient, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Tiny]:
    with pytest.MonkeyPatch.context() as patch:
        cache = tmp_path_factory.mktemp("cache")
        isolate(patch, cache)
        definition = tiny(tmp_path_factory.mktemp("images"), name=f"{NAME}-stack", dockerfile=request.param)
        said: list[str] = []
        yield Tiny(definition, build_image(client, definition, BuildOptions(base=BASE), said.append), said, cache)
    remove_all(client, definition.name)


def layer_members(client: docker.DockerClient, tag: str) -> list[str]:
    """The names of all files in all layers."""
    archive = io.BytesIO(b"".join(client.images.get(tag).save()))
    names: list[str] = []
    with tarfile.open(fileobj=archive) as image:
        for member in image.getmembers():
            if member.name.endswith("layer.tar"):
                with tarfile.open(fileobj=image.extractfile(member)) as layer:
                    names += layer.getnames()
    return names


def run_strictly(client: docker.DockerClient, tag: str, code: str) -> str:
    output: bytes = client.containers.run(tag, ["python", "-c", code], **STRICT)
    return output.decode().strip()


def test_labels_say_what_it_is_and_what_it_stands_on(client: docker.DockerClient, stack: Tiny) -> None:
    labels = client.images.get(STACK_TAG).labels
    assert labels == stack.built.labels
    assert labels["org.opencontainers.image.title"] == "Tiny"
    assert labels["org.opencontainers.image.version"] == "1"
    assert labels["org.opencontainers.image.base.name"] == BASE
    assert labels["org.opencontainers.image.base.digest"] == ""
    assert labels["kit.image"] == f"{NAME}-stack"
    assert labels["kit.definition"] == definition_digest(stack.definition)
    assert labels["kit.source"] == source_digest(SOURCES)
    assert labels["kit.lock"] == lock_digest(stack.definition)
    assert labels["kit.base-id"] == client.images.get(BASE).id
    assert not stack.built.base_is_pinned


def test_each_step_is_told(stack: Tiny) -> None:
    assert any(line.startswith("Step ") and " RUN " in line for line in stack.said)
    assert stack.said[-1].startswith(f"image: {stack.built.tag}, ")
    assert not list(stack.cache.glob("logs/*")), "the log of a build that succeeded"


def test_no_layer_holds_wheels_or_caches(client: docker.DockerClient, stack: Tiny) -> None:
    names = layer_members(client, STACK_TAG)
    assert any(name.endswith("/alpha.py") for name in names)
    own = [name for name in names if name.startswith(("opt/", "build", "root/", "tmp/", "var/cache/pip"))]
    assert not [name for name in own if name.endswith(".whl") or name.startswith(("build", "root/.", "tmp/", "var/"))]


def test_it_runs_strictly_as_any_user(client: docker.DockerClient, stack: Tiny) -> None:
    user = client.images.get(STACK_TAG).attrs["Config"]["User"]
    assert user not in ("", "0", "root", "0:0")
    code = (
        "import alpha, beta, getpass, os, pathlib, kit.errors;"
        "pathlib.Path.home().joinpath('x').write_text('x');"
        "print(alpha.VERSION, beta.VERSION, os.getuid(), getpass.getuser(), pathlib.Path.home(), kit.__version__)"
    )
    assert run_strictly(client, STACK_TAG, code).split()[:5] == ["1.0", "1.5", "54321", "kit", "/tmp"]


def test_the_image_is_recognised(client: docker.DockerClient, stack: Tiny) -> None:
    assert check_image(client, stack.definition) == stack.built


def test_other_sources_are_not_recognised(
    client: docker.DockerClient, base: str, stack: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_sources(monkeypatch, SOURCES | {"errors.py": b"changed"})
    with pytest.raises(
        ImageFault, match=f"kit's own sources differ; run 'kit images build {NAME}-stack --base {base}'"
    ) as caught:
        check_image(client, stack.definition)
    assert caught.value.exit_code is ExitCode.IMAGE


def test_another_definition_is_not_recognised(client: docker.DockerClient, stack: Tiny, tmp_path: Path) -> None:
    other = tiny(tmp_path, name=f"{NAME}-stack", dockerfile=stack.definition.dockerfile, base="debian:other")
    with pytest.raises(ImageFault, match="its TOML, lock or Dockerfile differ"):
        check_image(client, other)


def test_an_image_that_is_not_built_is_a_fault(client: docker.DockerClient, tmp_path: Path) -> None:
    absent = tiny(tmp_path).model_copy(update={"version": "absent"})
    with pytest.raises(
        ImageFault, match=f"image kit-{NAME}:absent-[0-9a-f]{{12}} is not built; run 'kit images build {NAME}'"
    ):
        check_image(client, absent)


@pytest.mark.usefixtures("no_tag_left")
def test_a_change_in_kit_is_one_layer_and_seconds(
    client: docker.DockerClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    definition = tiny(tmp_path)
    first = build_image(client, definition, BuildOptions(base=BASE), lambda _: None)
    before = client.images.get(first.id).attrs["RootFS"]["Layers"]
    use_sources(monkeypatch, SOURCES | {"new_module.py": b"VALUE = 42\n"})
    started = time.monotonic()
    second = build_image(client, definition, BuildOptions(base=BASE), lambda _: None)
    assert time.monotonic() - started < 20
    after = client.images.get(second.id).attrs["RootFS"]["Layers"]
    assert after[:-1] == before[:-1]
    assert after[-1] != before[-1]
    assert run_strictly(client, TAG, "import kit.new_module as m; print(m.VALUE)") == "42"
    assert client.images.get(TAG).id == second.id
    assert client.images.get(first.tag).id == first.id, "another checkout may still run it"
    monkeypatch.setattr(image_store, "load_images", lambda: {NAME: definition})
    assert not [image for image in leftovers(client, 1) if image.id in (first.id, second.id)]
    (old,) = [image for image in leftovers(client, 0) if image.id in (first.id, second.id)]
    assert old.tags == (first.tag,)
    assert remove(client, old)
    assert client.images.get(second.tag).id == second.id


@pytest.mark.usefixtures("no_tag_left")
def test_what_is_built_already_is_only_named_again(client: docker.DockerClient, tmp_path: Path) -> None:
    definition = tiny(tmp_path)
    first = build_image(client, definition, BuildOptions(base=BASE), lambda _: None)
    client.images.remove(TAG)
    said: list[str] = []
    assert build_image(client, definition, BuildOptions(base=BASE), said.append) == first
    assert client.images.get(TAG).id == first.id
    assert len(said) == 1
    client.images.get(BASE).tag(*first.tag.split(":"))
    assert build_image(client, definition, BuildOptions(base=BASE), lambda _: None).id == first.id


@pytest.mark.usefixtures("no_tag_left")
def test_steps_have_no_network_and_a_failure_keeps_its_log(client: docker.DockerClient, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile.tiny").write_text(
        "ARG BASE_IMAGE\nFROM ${BASE_IMAGE}\n"
        "RUN python3 -c \"import os; print('interfaces', sorted(os.listdir('/sys/class/net')))\" \\\n"
        "    && python3 -c \"import socket as s; s.socket(type=s.SOCK_DGRAM).connect(('192.0.2.1', 9))\"\n"
    )
    definition = tiny(tmp_path, dockerfile="Dockerfile.tiny")
    with pytest.raises(ImageFault, match=r"a step ended with exit code 1: .*Network is unreachable") as caught:
        build_image(client, definition, BuildOptions(base=BASE), lambda _: None)
    (log,) = (cache_folder() / "logs").iterdir()
    assert str(log) in str(caught.value)
    assert "interfaces ['lo']" in log.read_text()
    assert "\n" not in str(caught.value)


def test_a_stack_that_is_not_the_expected_one_is_not_built(client: docker.DockerClient, tmp_path: Path) -> None:
    definition = tiny(tmp_path)
    wrong = definition.model_copy(update={"expects": {"alpha": "9.9"}, "name": f"{NAME}-wrong"})
    with pytest.raises(ImageFault, match=r"alpha 9\.9 is expected, 1\.0 is there"):
        build_image(client, wrong, BuildOptions(base=BASE), lambda _: None)
    with pytest.raises(ImageFault, match="is not built"):
        check_image(client, wrong)


def test_a_base_that_cannot_be_had_says_what_to_do(client: docker.DockerClient, tmp_path: Path) -> None:
    with pytest.raises(ImageFault, match=r"base image localhost:1/none:1 is not here .*--base.*docker-engine\.sh base"):
        build_image(client, tiny(tmp_path), BuildOptions(), lambda _: None)
