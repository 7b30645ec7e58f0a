"""What to do about an image that was built from something else."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from kit.errors import ImageFault
from kit.host.image_store import check_image
from kit.image import definition_digest, source_digest, source_files
from tests.tiny_wheels import make_definition


def remedy(folder: Path, labels: dict[str, str]) -> str:
    definition = make_definition(folder, base="debian:12", digest="sha256:" + "0" * 64)
    definition.lock_path.write_text("")
    image = SimpleNamespace(id="sha256:1", tags=["tiny:1"], labels={"kit.image": "tiny", **labels}, attrs={"Size": 1})
    client = SimpleNamespace(images=SimpleNamespace(get=lambda tag: image))
    with pytest.raises(ImageFault) as caught:
        check_image(client, definition)
    return str(caught.value).rpartition("; ")[2]


@pytest.mark.parametrize(
    ("pinned", "base", "option"),
    [
        ("no", "mine:1", " --base mine:1"),
        ("no", "debian:12", ""),
        ("no", "", ""),
        ("yes", "debian:12", ""),
        ("yes", "debian:11", ""),
    ],
)
def test_the_remedy_builds_on_the_base_that_the_image_stands_on(
    tmp_path: Path, pinned: str, base: str, option: str
) -> None:
    said = remedy(tmp_path, {"kit.base-pinned": pinned, "org.opencontainers.image.base.name": base})
    assert said == f"run 'kit images build tiny{option}'"


def test_an_image_without_labels_names_no_base(tmp_path: Path) -> None:
    assert remedy(tmp_path, {}) == "run 'kit images build tiny'"


@pytest.mark.parametrize(("made_for", "here"), [("arm64", "amd64"), ("amd64", "arm64")])
def test_an_image_for_another_architecture_is_refused(tmp_path: Path, made_for: str, here: str) -> None:
    definition = make_definition(tmp_path)
    definition.lock_path.write_text("")
    labels = {
        "kit.image": "tiny",
        "kit.definition": definition_digest(definition),
        "kit.source": source_digest(source_files()),
    }
    image = SimpleNamespace(id="sha256:1", tags=["tiny:1"], labels=labels, attrs={"Size": 1, "Architecture": made_for})
    client = SimpleNamespace(images=SimpleNamespace(get=lambda tag: image), version=lambda: {"Arch": here})
    with pytest.raises(
        ImageFault, match=f"is for {made_for}, and the engine's machine is {here}; run 'kit images build"
    ):
        check_image(client, definition)
    image.attrs["Architecture"] = here
    assert check_image(client, definition).id == image.id
