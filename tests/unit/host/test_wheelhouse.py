"""Resolving and fetching with the real pip, on a folder of wheels made here."""

import hashlib
import itertools
import os
from pathlib import Path

import pytest

from kit.digest import file_sha256
from kit.errors import EnvironmentFault, ExitCode, ImageFault
from kit.host import wheelhouse
from kit.host.image_lock import lock_wheels
from kit.host.lockfile import Pin, read_lock, write_lock
from kit.host.pip import pip_fault
from kit.host.resolve import resolve, target_options
from kit.host.wheelhouse import MARKER, fetch_wheels, wheelhouse_folder
from kit.image import ImageDefinition, PythonTarget
from tests.tiny_wheels import NEXT_PYTHON, make_definition, make_wheel


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only place where pip looks: alpha needs beta, gamma needs something that nobody has."""
    folder = tmp_path / "index"
    make_wheel(folder, "alpha", "1.0", requires=["beta>=1", "delta; python_version < '3'"])
    make_wheel(folder, "beta", "1.5")
    make_wheel(folder, "gamma", "2.0", requires=["nowhere==3"])
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("KIT_CACHE", str(tmp_path / "cache"))
    return folder


@pytest.fixture
def locked(tmp_path: Path, index: Path) -> ImageDefinition:
    definition = make_definition(tmp_path / "images", requirements=["alpha"], without_dependencies=["gamma==2.0"])
    wheels = {path.name.split("-")[0]: path for path in index.iterdir()}
    write_lock(definition, [Pin(name, path.name.split("-")[1], sha256(path)) for name, path in wheels.items()])
    return definition


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_lock_holds_dependencies_and_bare_pins(index: Path, locked: ImageDefinition) -> None:
    expected = (
        Pin("alpha", "1.0", sha256(index / "alpha-1.0-py3-none-any.whl")),
        Pin("beta", "1.5", sha256(index / "beta-1.5-py3-none-any.whl")),
        Pin("gamma", "2.0", sha256(index / "gamma-2.0-py3-none-any.whl")),
    )
    assert lock_wheels(locked) == (3, False)
    assert read_lock(locked) == expected
    locked.lock_path.unlink()
    assert lock_wheels(locked) == (3, True)
    assert read_lock(locked) == expected


def test_a_requirement_that_nobody_has(tmp_path: Path, index: Path) -> None:
    with pytest.raises(ImageFault, match="pip finds no wheel of nowhere==3") as caught:
        resolve(make_definition(tmp_path, requirements=["gamma"]))
    assert caught.value.exit_code is ExitCode.IMAGE


def test_cpu_torch_that_pip_cannot_see_says_where_it_comes_from(tmp_path: Path, index: Path) -> None:
    with pytest.raises(ImageFault, match=r"torch==2\.13\.0\+cpu; make PyTorch's CPU wheel index .*PIP_EXTRA_INDEX_URL"):
        resolve(make_definition(tmp_path, requirements=["torch==2.13.0+cpu"]))


def test_requirements_that_contradict_each_other(tmp_path: Path, index: Path) -> None:
    make_wheel(index, "beta", "0.5")
    with pytest.raises(ImageFault, match=r"contradict each other: .*beta<1"):
        resolve(make_definition(tmp_path, requirements=["alpha", "beta<1"]))


def test_one_version_only(tmp_path: Path, index: Path) -> None:
    make_wheel(index, "beta", "1.6")
    with pytest.raises(ImageFault, match=r"beta is 1\.6 by dependencies and 1\.5 by pin"):
        resolve(make_definition(tmp_path, requirements=["alpha"], without_dependencies=["beta==1.5"]))


def test_a_requirement_of_the_images_python_only_is_not_lost(tmp_path: Path, index: Path) -> None:
    make_wheel(index, "epsilon", "1", requires=[f"beta; python_version >= '{NEXT_PYTHON}'"])
    assert [pin.name for pin in resolve(make_definition(tmp_path, requirements=["epsilon"]))] == ["epsilon"]
    later = make_definition(tmp_path, requirements=["epsilon"], python=NEXT_PYTHON)
    with pytest.raises(ImageFault, match=f"Python {NEXT_PYTHON} also needs beta"):
        resolve(later)
    complete = make_definition(tmp_path, requirements=["epsilon", "beta"], python=NEXT_PYTHON)
    assert [pin.name for pin in resolve(complete)] == ["beta", "epsilon"]


def test_platform_tags_go_from_the_newest_to_the_oldest() -> None:
    options = target_options(PythonTarget(version="3.12", platform="manylinux_2_18_x86_64"))
    tags = [value for option, value in itertools.pairwise(options) if option == "--platform"]
    assert tags[:3] == ["manylinux_2_18_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64"]
    assert tags[-3:] == ["manylinux_2_5_x86_64", "manylinux1_x86_64", "linux_x86_64"]


def test_fetching_makes_a_complete_wheelhouse_once(locked: ImageDefinition, monkeypatch: pytest.MonkeyPatch) -> None:
    house = fetch_wheels(locked)
    assert [path.name.split("-")[0] for path in house.wheels] == ["alpha", "beta", "gamma"]
    assert {sha256(path) for path in house.wheels} == {pin.sha256 for pin in read_lock(locked)}
    assert (house.folder / MARKER).read_text().split() == [
        word for path in house.wheels for word in (sha256(path), path.name)
    ]
    assert house.fetched == 3
    assert sorted(path.name for path in house.folder.iterdir()) == sorted([MARKER, *(p.name for p in house.wheels)])
    monkeypatch.setattr(wheelhouse, "run_pip", lambda *_: pytest.fail("pip was run for a complete wheelhouse"))
    assert fetch_wheels(locked).fetched == 0


def test_a_partial_file_of_an_interrupted_run_is_fetched_again(locked: ImageDefinition) -> None:
    house = fetch_wheels(locked)
    whole = house.wheels[0].read_bytes()
    house.wheels[0].write_bytes(whole[: len(whole) // 2])
    (house.folder / MARKER).unlink()
    again = fetch_wheels(locked)
    assert again.fetched == 1
    assert again.wheels[0].read_bytes() == whole
    assert (again.folder / MARKER).is_file()


def test_a_wheel_with_another_hash_is_named(index: Path, locked: ImageDefinition) -> None:
    make_wheel(index, "beta", "1.5", body="EVIL = True")
    with pytest.raises(
        ImageFault, match=r"beta-1\.5-py3-none-any\.whl: its SHA-256 is not the one in the lock"
    ) as caught:
        fetch_wheels(locked)
    assert caught.value.exit_code is ExitCode.IMAGE
    folder = wheelhouse_folder(locked)
    assert not (folder / MARKER).exists()
    assert not list(folder.glob("beta*"))


def test_a_wheel_that_is_gone_is_named(index: Path, locked: ImageDefinition) -> None:
    (index / "gamma-2.0-py3-none-any.whl").unlink()
    with pytest.raises(ImageFault, match=r"pip finds no wheel of gamma==2\.0"):
        fetch_wheels(locked)


def test_a_new_lock_fetches_only_what_is_new(index: Path, locked: ImageDefinition) -> None:
    first = fetch_wheels(locked)
    new = make_wheel(index, "omega", "1")
    write_lock(locked, [*read_lock(locked), Pin("omega", "1", sha256(new))])
    second = fetch_wheels(locked)
    assert (first.folder != second.folder, second.fetched, len(second.wheels)) == (True, 1, 4)


def test_a_stray_wheel_never_gets_in(locked: ImageDefinition) -> None:
    stray = make_wheel(wheelhouse_folder(locked), "stray", "1")
    house = fetch_wheels(locked)
    assert stray not in house.wheels
    assert not stray.exists()


def test_no_network_is_one_line(locked: ImageDefinition, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "1")
    with pytest.raises(EnvironmentFault, match="cannot reach its package index") as caught:
        fetch_wheels(locked)
    assert caught.value.exit_code is ExitCode.ENVIRONMENT


def test_a_cache_that_cannot_be_made_is_one_line(
    tmp_path: Path, locked: ImageDefinition, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("KIT_CACHE", str(tmp_path / "file"))
    with pytest.raises(EnvironmentFault, match=r"Not a directory; .*KIT_CACHE"):
        fetch_wheels(locked)


def test_a_full_disk_is_one_line() -> None:
    fault = pip_fault("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device\n")
    assert isinstance(fault, EnvironmentFault)
    assert "the disk is full" in str(fault)


def test_an_unknown_failure_tells_pips_last_error() -> None:
    assert "it broke" in str(pip_fault("WARNING: beware\nERROR: it broke\nnoise\n"))
    assert "it said nothing" in str(pip_fault(""))


def test_the_hash_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "abc"
    path.write_bytes(b"abc")
    assert file_sha256(path) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"  # FIPS 180-2, B.1
