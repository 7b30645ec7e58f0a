"""Image definitions: one TOML and one lock per software stack, and the digests by which a built image is recognised."""

import hashlib
from pathlib import Path
from typing import Self

from pydantic import Field

from kit.errors import ImageFault, UsageFault
from kit.measurement import Record
from kit.names import unknown
from kit.paths import data_folder, dockerfile, package_folder
from kit.toml import load_toml

_NOT_SOURCE = ("__pycache__", "data")
_CONTENT_DIGITS = 12
_DIGEST = r"^(sha256:[0-9a-f]{64})?$"


class BaseImage(Record):
    """The image that a definition builds on.

    Attributes:
        reference: repository and tag.
        candidate: digest that others quote for that tag; never used, only compared when the tag is locked.
        digest: of that tag, as ``kit images lock`` found it; empty: not locked yet.
    """

    reference: str = Field(pattern=r"^[a-z0-9][a-z0-9._/:-]*:[A-Za-z0-9_][A-Za-z0-9._-]*$")
    candidate: str = Field(default="", pattern=_DIGEST)
    digest: str = Field(default="", pattern=_DIGEST)


class PythonTarget(Record):
    """The Python inside the image, for which wheels are chosen.

    Attributes:
        version: such as ``3.11``.
        platform: the newest platform tag that the base's C library allows; older ones of that machine follow from it.
    """

    version: str = Field(pattern=r"^3\.\d+$")
    platform: str = Field(pattern=r"^manylinux_2_\d+_(x86_64|aarch64)$")


class ImageFile(Record):
    """What stands in ``images/<name>.toml``.

    Attributes:
        version: raised by hand when the stack changes its meaning; part of the tag.
        dockerfile: file name.
        lock: file name, in the folder of the definition.
        requirements: resolved together with their dependencies.
        without_dependencies: exact pins, installed without what they ask for.
        expects: distributions that must be inside, with version; ``*`` and ``?`` match as in file names.
        facts: what torch was built for: ``torch.version.cuda`` or ``torch.version.hip``, as in `expects`.
        kernels: GPU architectures that the libraries of a distribution must hold code for, such as ``sm_90``.
        imports: modules that import where there is no device.
        leaves_out: installed files that are removed, named as in RECORD; ``*`` matches any part of a path.
        not_pinned_by_hash: what no digest and no hash of this definition holds fast, each a sentence.
    """

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9.-]*$")
    version: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    title: str
    dockerfile: str
    lock: str
    requirements: tuple[str, ...]
    without_dependencies: tuple[str, ...] = ()
    leaves_out: tuple[str, ...] = ()
    not_pinned_by_hash: tuple[str, ...] = ()
    base: BaseImage
    python: PythonTarget
    expects: dict[str, str]
    facts: dict[str, str] = Field(default_factory=dict)
    kernels: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    imports: tuple[str, ...] = ()


class ImageDefinition(ImageFile):
    """An image definition and the TOML file that it came from."""

    path: Path = Field(exclude=True)

    @property
    def tag(self) -> str:
        """``kit-cpu:1``: names the newest build by whatever checkout; see `content_tag`."""
        return f"kit-{self.name}:{self.version}"

    @property
    def base_reference(self) -> str:
        """The base as an engine is asked for it: by digest when locked, else by tag."""
        if not self.base.digest:
            return self.base.reference
        return f"{self.base.reference.rsplit(':', 1)[0]}@{self.base.digest}"

    @property
    def lock_path(self) -> Path:
        """The lock, beside the definition."""
        return self.path.parent / self.lock

    @property
    def dockerfile_path(self) -> Path:
        """The Dockerfile: beside the definition, else where kit's own lie."""
        beside = self.path.parent / self.dockerfile
        return beside if beside.is_file() else dockerfile(self.dockerfile)

    @property
    def build_command(self) -> str:
        """The command that builds this image."""
        return f"kit images build {self.name}"

    def on_python(self, version: str | None) -> Self:
        """The same stack for another Python, such as ``3.11``, with a lock of its own; itself for None or its own Python.

        For bases that bring another Python than the definition's. Its name says so: ``cuda`` becomes ``cuda-py311``.
        """
        if version in (None, self.python.version):
            return self
        python = PythonTarget.model_validate({**dict(self.python), "version": version})
        suffix = f"-py{version.replace('.', '')}"
        lock = f"{self.lock.removesuffix('.lock')}{suffix}.lock"
        return self.model_copy(update={"name": self.name + suffix, "lock": lock, "python": python})

    def refuse_unpinned(self) -> None:
        """Accept only a definition whose base is held by a digest.

        Raises:
            ImageFault: it is held by a tag only.
        """
        if not self.base.digest:
            raise ImageFault(
                f"image {self.name}: the base {self.base.reference} is not pinned by digest",
                f"run 'kit images lock {self.name}' where its registry can be reached",
            )


def load_images(folder: Path | None = None) -> dict[str, ImageDefinition]:
    """All definitions by name.

    Raises:
        UsageFault: a damaged file, or one that is not named after its image.
    """
    images: dict[str, ImageDefinition] = {}
    for path in sorted((folder or data_folder("images")).glob("*.toml")):
        file = load_toml(path, ImageFile)
        if file.name != path.stem:
            raise UsageFault(f"{path}: key 'name' is '{file.name}'", "name the file after the image")
        images[file.name] = ImageDefinition.model_validate({**dict(file), "path": path})
    return images


def find_image(name: str, folder: Path | None = None) -> ImageDefinition:
    """The definition with this name, whatever its case.

    Raises:
        UsageFault: no such image; the near matches are named.
    """
    images = load_images(folder)
    if found := images.get(name.casefold()):
        return found
    raise unknown("image", name, images)


def definition_digest(definition: ImageDefinition) -> str:
    """SHA-256 (hex) over the TOML, the lock and the Dockerfiles: another value is another image.

    Raises:
        ImageFault: one of the files is missing or unreadable.
    """
    digest = hashlib.sha256()
    for path in (definition.path, definition.lock_path, definition.dockerfile_path, kit_dockerfile()):
        _update(digest, path.name, _read(path))
    return digest.hexdigest()


def stack_tag(definition: ImageDefinition, base: str) -> str:
    """The name of the stack that an image stands on, all but kit's own sources: ``kit-cpu:1-stack-0123456789ab``.

    It follows from the lock, the Dockerfile, what is taken out and expected, and the id of the base image; not from titles
    or comments of the definition.

    Raises:
        ImageFault: one of the files is missing or unreadable.
    """
    digest = hashlib.sha256()
    for path in (definition.lock_path, definition.dockerfile_path, settle_script()):
        _update(digest, path.name, _read(path))
    _update(digest, base, repr((sorted(definition.expects.items()), definition.leaves_out)).encode())
    return f"{definition.tag}-stack-{digest.hexdigest()[:_CONTENT_DIGITS]}"


def kit_dockerfile() -> Path:
    """The Dockerfile that puts kit on a stack."""
    return dockerfile("Dockerfile.kit")


def settle_script() -> Path:
    """What runs inside while a stack is built."""
    return package_folder() / "host" / "image_settle.py"


def lock_digest(definition: ImageDefinition) -> str:
    """SHA-256 (hex) of the lock file.

    Raises:
        ImageFault: it is missing or unreadable.
    """
    return hashlib.sha256(_read(definition.lock_path)).hexdigest()


def content_tag(definition: ImageDefinition, sources: dict[str, bytes] | None = None) -> str:
    """The name of the image of exactly this definition, lock, Dockerfile and kit: ``kit-cpu:1-0123456789ab``.

    Checkouts that differ in any of them have images of different names on one engine.

    Raises:
        ImageFault: one of the files is missing or unreadable.
    """
    content = f"{definition_digest(definition)}{source_digest(sources)}"
    return f"{definition.tag}-{hashlib.sha256(content.encode()).hexdigest()[:_CONTENT_DIGITS]}"


def source_files(package: Path | None = None) -> dict[str, bytes]:
    """The files of the package ``kit`` that go into an image, by relative path, sorted; no caches, no packaged data."""
    package = package or package_folder()
    found = (path for path in package.rglob("*") if path.is_file() and path.suffix != ".pyc")
    named = sorted((path.relative_to(package), path) for path in found)
    return {name.as_posix(): path.read_bytes() for name, path in named if not set(name.parts[:-1]) & set(_NOT_SOURCE)}


def source_digest(files: dict[str, bytes] | None = None) -> str:
    """SHA-256 (hex) over the names and bytes of `source_files`."""
    digest = hashlib.sha256()
    for name, content in sorted((source_files() if files is None else files).items()):
        _update(digest, name, content)
    return digest.hexdigest()


def _update(digest: "hashlib._Hash", name: str, content: bytes) -> None:
    digest.update(f"{name}\0{len(content)}\0".encode())
    digest.update(content)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ImageFault(f"{path}: cannot be read: {error.strerror}", "restore the file, or make it anew") from None
