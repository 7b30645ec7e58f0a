"""Image definitions: kit's own hold together, bad ones are refused, and a digest tells every difference."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from kit.errors import ExitCode, ImageFault, UsageFault
from kit.host.image_lock import write_base_digest
from kit.host.image_settle import differences
from kit.host.lockfile import Pin, lock_text, normalised, read_lock, write_lock
from kit.image import content_tag, definition_digest, find_image, load_images, source_digest, source_files, stack_tag
from kit.profile import load_profiles
from tests.tiny_wheels import make_definition

DIGEST = "sha256:" + "5e" * 32
ROOT = Path(__file__).parents[2]
NAMES = sorted(load_images())


def pins_of(name: str) -> dict[str, str]:
    return {pin.name: pin.version for pin in read_lock(find_image(name))}


@pytest.mark.parametrize("name", NAMES)
def test_the_lock_of_an_image_fits_its_definition(name: str) -> None:
    definition = find_image(name)
    pins = pins_of(name)
    for wanted in map(Requirement, (*definition.requirements, *definition.without_dependencies)):
        assert wanted.specifier.contains(pins[normalised(wanted.name)], prereleases=True), wanted
    assert definition.dockerfile_path.is_file()


def test_a_dockerfile_alone_builds_on_the_base_of_a_definition() -> None:
    bases: dict[Path, set[str]] = {}
    for definition in load_images().values():
        bases.setdefault(definition.dockerfile_path, set()).add(f"\nARG BASE_IMAGE={definition.base.reference}\n")
    for path, lines in bases.items():
        assert any(line in path.read_text() for line in lines), path


@pytest.mark.parametrize("name", ["cpu", "cuda", "cuda-0.5.19"])
def test_what_an_image_settles_is_what_its_lock_holds(name: str) -> None:
    expected = find_image(name).expects
    assert expected == {key: pins_of(name)[normalised(key)] for key in expected}


@pytest.mark.parametrize("name", ["rocm", "rocm-7.2"])
def test_a_rocm_lock_hides_nothing_that_is_under_test(name: str) -> None:
    assert not {"torch", "triton", "sglang", "transformers", "numpy"} & set(pins_of(name))


@pytest.mark.parametrize("name", NAMES)
def test_kit_runs_on_the_python_of_every_image(name: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert SpecifierSet(project["requires-python"]).contains(find_image(name).python.version)


def test_another_python_is_another_image_with_a_lock_of_its_own() -> None:
    cuda = find_image("cuda")
    assert cuda.on_python(None) is cuda.on_python("3.12") is cuda
    other = cuda.on_python("3.11")
    assert (other.name, other.tag, other.lock) == ("cuda-py311", "kit-cuda-py311:1", "cuda-py311.lock")
    assert {pin.name: pin.version for pin in read_lock(other)}["torch"] == "2.11.0"


def test_a_tag_tells_the_content(tmp_path: Path) -> None:
    definition = make_definition(tmp_path, requirements=["alpha"])
    write_lock(definition, ())
    sources = {"a.py": b"1"}
    tag, stack = content_tag(definition, sources), stack_tag(definition, "sha256:0")
    assert re.fullmatch(r"kit-tiny:1-[0-9a-f]{12}", tag)
    assert re.fullmatch(r"kit-tiny:1-stack-[0-9a-f]{12}", stack)
    assert content_tag(definition, {"a.py": b"2"}) != tag
    assert stack_tag(definition, "sha256:1") != stack
    definition.path.write_text(definition.path.read_text() + "# a comment\n")
    assert content_tag(definition, sources) != tag
    assert stack_tag(definition, "sha256:0") == stack
    write_lock(definition, (Pin("alpha", "1", "a" * 64),))
    assert stack_tag(definition, "sha256:0") != stack


def test_the_cpu_lock_installs_a_checkout_without_a_network() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    pins = pins_of("cpu")
    for wanted in map(Requirement, (*project["project"]["dependencies"], *project["build-system"]["requires"])):
        assert wanted.specifier.contains(Version(pins[normalised(wanted.name)])), wanted


@pytest.mark.parametrize("name", NAMES)
def test_a_lock_names_no_index(name: str) -> None:
    text = find_image(name).lock_path.read_text()
    assert "://" not in text
    assert "index" not in text.lower()


def test_every_profile_has_its_image() -> None:
    assert {profile.image for profile in load_profiles().values() if not profile.missing} <= set(NAMES)


def test_a_name_is_found_in_any_case() -> None:
    assert find_image("CPU").name == "cpu"


def test_an_unknown_name_tells_the_near_match() -> None:
    with pytest.raises(UsageFault, match="unknown image 'cuad'; did you mean 'cuda'"):
        find_image("cuad")


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("name = ", 'name = "other"', "name the file after the image"),
        ("digest = ", 'digest = "sha256:12"', "base.digest"),
        ("reference = ", 'reference = "debian"', "base.reference"),
        ("platform = ", 'platform = "win_amd64"', "python.platform"),
        ("title = ", 'titel = "Tiny"', "key 'title' is missing (and 1 more)"),
        ("version = ", "version = 1", "version"),
    ],
)
def test_a_damaged_definition_is_one_line(tmp_path: Path, key: str, value: str, told: str) -> None:
    path = make_definition(tmp_path).path
    lines = path.read_text().splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith(key))
    path.write_text("\n".join([*lines[:at], value, *lines[at + 1 :]]))
    with pytest.raises(UsageFault) as caught:
        find_image("tiny", tmp_path)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_base_is_asked_for_by_digest_once_it_is_locked(tmp_path: Path) -> None:
    assert make_definition(tmp_path, base="host:5000/a/b:v1").base_reference == "host:5000/a/b:v1"
    assert make_definition(tmp_path, base="host:5000/a/b:v1", digest=DIGEST).base_reference == f"host:5000/a/b@{DIGEST}"


def test_an_unpinned_base_is_refused_where_pins_are_needed(tmp_path: Path) -> None:
    make_definition(tmp_path, digest=DIGEST).refuse_unpinned()
    with pytest.raises(ImageFault, match="kit images lock tiny") as caught:
        make_definition(tmp_path).refuse_unpinned()
    assert caught.value.exit_code is ExitCode.IMAGE


def test_the_digest_changes_with_each_of_its_files(tmp_path: Path) -> None:
    definition = make_definition(tmp_path, dockerfile="Dockerfile.tiny")
    files = (definition.path, tmp_path / "tiny.lock", tmp_path / "Dockerfile.tiny")
    for path in files[1:]:
        path.write_text("# empty\n")
    seen = {definition_digest(definition)}
    for path in files:
        path.write_text(path.read_text() + "# changed\n")
        seen.add(definition_digest(definition))
    assert len(seen) == 4


def test_a_digest_of_missing_files_is_an_image_fault(tmp_path: Path) -> None:
    with pytest.raises(ImageFault, match=r"tiny\.lock: cannot be read"):
        definition_digest(make_definition(tmp_path))


def test_sources_are_names_and_bytes_without_caches_and_packaged_data(tmp_path: Path) -> None:
    for name in ("a.py", "b/c.py", "b/__pycache__/c.pyc", "data/profiles/x.toml"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    files = source_files(tmp_path)
    assert list(files) == ["a.py", "b/c.py"]
    assert source_digest(files) == source_digest(dict(reversed(files.items())))
    assert source_digest(files) != source_digest(files | {"a.py": b"y"})
    assert source_digest({"ab": b"c"}) != source_digest({"a": b"bc"})


def test_kits_own_sources_are_found() -> None:
    assert {"__init__.py", "errors.py", "worker/__init__.py"} <= set(source_files())


def test_a_lock_is_sorted_and_reads_back(tmp_path: Path) -> None:
    definition = make_definition(tmp_path, requirements=["beta"])
    pins = (Pin("beta", "2.0+cpu", "b" * 64), Pin("alpha", "1", "a" * 64))
    assert write_lock(definition, pins)
    assert not write_lock(definition, tuple(reversed(pins)))
    assert read_lock(definition) == tuple(sorted(pins))
    assert lock_text(definition, pins) == definition.lock_path.read_text()


def test_a_lock_of_other_requirements_is_stale(tmp_path: Path) -> None:
    write_lock(make_definition(tmp_path, requirements=["alpha"]), ())
    with pytest.raises(ImageFault, match="other requirements"):
        read_lock(make_definition(tmp_path, requirements=["alpha", "beta"]))


@pytest.mark.parametrize("line", ["alpha", "alpha==1", "alpha==1 --hash=md5:00", "-r other.txt"])
def test_a_lock_line_without_a_hash_is_refused(tmp_path: Path, line: str) -> None:
    definition = make_definition(tmp_path)
    write_lock(definition, ())
    definition.lock_path.write_text(definition.lock_path.read_text() + line + "\n")
    with pytest.raises(ImageFault, match="not a pinned wheel"):
        read_lock(definition)


def test_a_digest_is_written_in_place(tmp_path: Path) -> None:
    definition = make_definition(tmp_path, requirements=["alpha"])
    before = definition.path.read_text()
    assert write_base_digest(definition.path, DIGEST)
    assert definition.path.read_text() == before.replace('digest = ""', f'digest = "{DIGEST}"')
    assert find_image("tiny", tmp_path).base.digest == DIGEST
    assert not write_base_digest(definition.path, DIGEST)


def test_a_definition_without_a_digest_line_is_left_alone(tmp_path: Path) -> None:
    path = make_definition(tmp_path).path
    text = "".join(line for line in path.read_text().splitlines(keepends=True) if not line.startswith("digest"))
    path.write_text(text + 'digest = "elsewhere"\n')
    with pytest.raises(ImageFault, match=r"table \[base\] has no line"):
        write_base_digest(path, DIGEST)
    assert path.read_text() == text + 'digest = "elsewhere"\n'


def test_expectations_are_exact_or_patterns() -> None:
    here = Version(__import__("pydantic").VERSION)
    assert differences([f"pydantic=={here}", f"pydantic=={here.major}.*"]) == []
    assert differences(["pydantic==0.1"]) == [f"pydantic 0.1 is expected, {here} is there"]
    assert differences(["no-such-thing==1"]) == ["no-such-thing 1 is expected and not there"]
