"""What was changed in a real image after it was built, or under it, is found by looking into it."""

import io
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest

from kit.errors import ImageFault
from kit.host import image_build
from kit.host.image_build import BuildOptions, build_image
from kit.host.image_store import BuiltImage
from kit.host.image_verify import Verified, verify_image
from kit.host.wheelhouse import Wheelhouse, held_wheels
from kit.image import ImageDefinition, find_image
from tests.docker.conftest import BASE
from tests.docker.tiny import NAME, isolate, remove_all, tiny
from tests.tiny_wheels import make_wheel

pytestmark = pytest.mark.docker

SITE = "/opt/kit/lib/python3.11/site-packages"
ALPHA = f"{SITE}/alpha.py"
RECORD = f"{SITE}/alpha-1.0.dist-info/RECORD"
REHASH = (
    f"import base64,hashlib,pathlib as p; r=p.Path('{RECORD}'); d=hashlib.sha256(p.Path('{ALPHA}').read_bytes()).digest();"
    "h=base64.urlsafe_b64encode(d).rstrip(b'=').decode();"
    "r.write_text('\\n'.join(f'alpha.py,sha256={h},9' if l.startswith('alpha.py,') else l for l in r.read_text().splitlines()))"
)
COMPILE = (
    f"import py_compile as c; c.compile('/tmp/x.py', cfile='{SITE}/__pycache__/alpha.cpython-311.pyc', "
    "invalidation_mode=c.PycInvalidationMode.UNCHECKED_HASH)"
)


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        isolate(patch, tmp_path_factory.mktemp("cache"))
        yield patch


@pytest.fixture(scope="module")
def definition(house: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> ImageDefinition:
    return tiny(tmp_path_factory.mktemp("images"), imports=["alpha"], leaves_out=["beta.py"])


@pytest.fixture(scope="module")
def built(client: docker.DockerClient, definition: ImageDefinition) -> Iterator[BuiltImage]:
    yield build_image(client, definition, BuildOptions(base=BASE), lambda _: None)
    remove_all(client, NAME)


def rebuilt(client: docker.DockerClient, built: BuiltImage, steps: str, base: str | None = None) -> None:
    """Put another image under the tag: `built`, or a base, with more steps of a Dockerfile."""
    text = f"FROM {base or built.id}\nUSER 0:0\n{steps}\n".encode()
    with io.BytesIO() as context:
        with tarfile.open(fileobj=context, mode="w") as tar:
            member = tarfile.TarInfo("Dockerfile")
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text))
        context.seek(0)
        client.images.build(
            fileobj=context, custom_context=True, tag=built.tag, network_mode="none", rm=True, forcerm=True
        )


@pytest.fixture
def restored(client: docker.DockerClient, built: BuiltImage) -> Iterator[None]:
    yield
    changed = client.images.get(built.tag).id
    client.images.get(built.id).tag(*built.tag.split(":"))
    if changed != built.id:
        client.images.remove(changed)


def only(verified: Verified, *words: str) -> list[str]:
    """The findings, less those of the layer that every change in these tests adds."""
    found = [text for text in verified.findings if "layers lie on it, not 2" not in text]
    assert len(found) == len(words), found
    for text, word in zip(found, words, strict=True):
        assert word in text
    return found


def test_what_was_built_is_what_is_there(
    client: docker.DockerClient, definition: ImageDefinition, built: BuiltImage
) -> None:
    verified = verify_image(client, definition)
    assert verified.findings == []
    assert verified.not_checked == []
    assert [text.split(":")[0] for text in verified.held] == [
        *("base", "labels", "lock", "distributions", "stack", "files", "files", "RECORD", "kit", "import alpha")
    ]
    assert "python 3.11." in next(text for text in verified.held if text.startswith("stack"))


@pytest.mark.usefixtures("restored")
@pytest.mark.parametrize(
    ("steps", "told"),
    [
        (f"RUN echo >> {ALPHA}", ["alpha: alpha.py is changed", "bytecode of another source"]),
        (f"RUN rm {ALPHA}", ["alpha: alpha.py is missing", "alpha.cpython-311.pyc is", "No module named 'alpha'"]),
        (f'RUN echo >> {ALPHA} && python -c "{REHASH}"', ["bytecode of another", "alpha: RECORD differs from the wheel's"]),
        (f"RUN echo VALUE=1 > {SITE}/extra.py", ["extra.py is in no RECORD"]),
        (f'RUN echo X=1 > /tmp/x.py && python -c "{COMPILE}"', ["bytecode of another source"]),
        (f"RUN rm -r {SITE}/beta-1.5.dist-info", ["beta is not there", "beta is not there", "beta.py", "METADATA", "WHEEL"]),
        ("RUN echo >> /opt/kit-source/kit/errors.py", ["errors.py is '"]),
        ("LABEL kit.lock=0", ["labels: 10: kit.lock is '0'"]),
        ("LABEL kit.base-id=sha256:0", ["labels: 10: kit.base-id is 'sha256:0'"]),
    ],
)  # fmt: skip
def test_a_change_is_found(
    client: docker.DockerClient, definition: ImageDefinition, built: BuiltImage, steps: str, told: list[str]
) -> None:
    rebuilt(client, built, steps)
    found = only(verify_image(client, definition), *told)
    assert all("\n" not in text for text in found)


@pytest.mark.usefixtures("restored")
def test_another_base_under_the_same_labels_is_found(
    client: docker.DockerClient, definition: ImageDefinition, built: BuiltImage
) -> None:
    labels = " ".join(f"{key}='{value}'" for key, value in built.labels.items())
    environment = "ENV PATH=/opt/kit/bin:/usr/bin:/bin PYTHONPATH=/opt/kit-source"
    rebuilt(client, built, f"COPY --from={built.id} / /\n{environment}\nLABEL {labels}", base="scratch")
    (told,) = [text for text in verify_image(client, definition).findings if "does not begin" in text]
    assert told.startswith(f"base: 1 layers of {BASE}: the image does not begin with the layers of sha256:")


def test_a_stale_lock_is_found(
    client: docker.DockerClient, built: BuiltImage, definition: ImageDefinition, tmp_path: Path
) -> None:
    shutil.copytree(definition.path.parent, tmp_path / "images")
    path = tmp_path / "images" / definition.path.name
    path.write_text(path.read_text().replace("requirements = ['alpha']", "requirements = ['alpha', 'beta']", 1))
    found = verify_image(client, find_image(NAME, path.parent)).findings
    assert [text.split(":")[0] for text in found] == ["labels", "lock"]
    assert "other requirements" in found[1]


def test_without_the_wheels_that_is_told(
    client: docker.DockerClient, definition: ImageDefinition, built: BuiltImage
) -> None:
    verified = verify_image(client, definition, wheels=lambda _: ())
    assert verified.findings == []
    assert [text.split(":")[0] for text in verified.not_checked] == ["RECORD itself"]


def test_an_altered_wheel_is_not_installed(
    client: docker.DockerClient, definition: ImageDefinition, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here it gets as far as the build: the step itself holds it against the lock."""
    wheels = [make_wheel(tmp_path, "alpha", "1.0", body="EVIL = 1"), *held_wheels(definition)[1:]]
    monkeypatch.setattr(image_build, "fetch_wheels", lambda _: Wheelhouse(tmp_path, tuple(wheels), 0))
    with pytest.raises(ImageFault, match="could not be built: a step ended with exit code 1"):
        build_image(client, definition, BuildOptions(base=BASE, use_cache=False), lambda _: None)


def test_an_altered_wheel_in_the_wheelhouse_is_no_held_wheel(definition: ImageDefinition) -> None:
    wheels = held_wheels(definition)
    assert len(wheels) == 2
    content = wheels[0].read_bytes()
    try:
        wheels[0].write_bytes(content + b"x")
        assert held_wheels(definition) == ()
    finally:
        wheels[0].write_bytes(content)
