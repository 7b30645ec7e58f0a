"""What to do about an image that was built from something else."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from kit.errors import ImageFault
from kit.host.image_store import check_image
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
