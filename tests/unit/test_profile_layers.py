"""A profile on top of its families: what wins, who is named as the origin, and what is refused in one line."""

import json
import re
from pathlib import Path

import pytest

from kit.cli import main
from kit.errors import UsageFault
from kit.profile import Profile, find_layers, find_profile, load_profiles
from kit.profile_layers import COMMAND_LINE, DEFAULT, leaves, read_layers

CPU = re.sub(r'session_start = "[^"]+"', 'session_start = "77s"', Path("profiles/cpu.toml").read_text(), count=1)


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / f"{name.replace('__', '/')}.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


@pytest.fixture
def layered(tmp_path: Path) -> Path:
    """Three files: a profile, a family, and what that extends."""
    base = CPU.replace('name = "cpu"', 'name = "base"\naliases = ["nobody"]')
    family = 'extends = "families/base"\nsessions_at_once = 3\nmandatory = ["kernels"]\n[time]\ncase = "7s"\n'
    family += "[engine.arguments]\nextra = { a = 1, b = 2 }\n"
    own = 'extends = "families/family"\nname = "own"\ntitle = "Own"\n[time]\nrun = "11min"\n[engine.arguments]\nextra = { b = 3 }\n'
    return write(tmp_path, families__base=base, families__family=family, own=own)


def test_the_nearest_file_wins_key_by_key(layered: Path) -> None:
    profile, layers = find_layers("own", layered)
    assert (profile.name, profile.title, profile.aliases) == ("own", "Own", ())
    assert profile.time.model_dump(mode="json") == {"session_start": "77s", "case": "7s", "run": "660s"}
    assert profile.mandatory == ("kernels",), "an array is replaced, not joined"
    assert profile.engine.arguments["extra"] == {"a": 1, "b": 3}
    assert profile.engine.arguments["device"] == "cpu"
    origins = {
        "time.run": "own.toml",
        "time.case": "families/family.toml",
        "time.session_start": "families/base.toml",
        "engine.arguments.extra.a": "families/family.toml",
        "engine.arguments.extra.b": "own.toml",
        "engine.arguments.device": "families/base.toml",
        "container.seccomp": DEFAULT,
        "aliases": DEFAULT,
        "name": "own.toml",
    }
    assert {key: layers.origin_of(key) for key in origins} == origins


def test_how_takes_the_place_of_why_not(tmp_path: Path) -> None:
    own = 'extends = "cpu"\nname = "own"\ntitle = "Own"\n[engine.variants]\n'
    own += 'tensor-parallel = { arguments = { tp_size = 4 } }\nradix-cache = { absent = "for a test" }\n'
    variants = find_profile("own", write(tmp_path, cpu=CPU, own=own)).engine.variants
    assert variants["tensor-parallel"].arguments == {"tp_size": 4} and variants["tensor-parallel"].absent is None
    assert variants["radix-cache"].absent == "for a test" and variants["radix-cache"].arguments == {}


def test_families_are_no_profiles(layered: Path) -> None:
    assert list(load_profiles(layered)) == ["own"]


def test_the_command_line_is_the_last_layer_and_makes_another_profile(layered: Path) -> None:
    changes = ("time.case=10min", "engine.arguments.chunk = 8", 'engine.arguments.extra={c = "x"}', "gpus=0")
    profile, layers = find_layers("own", layered, changes)
    assert profile.time.case.total_seconds() == 600
    assert profile.engine.arguments["chunk"] == 8
    assert profile.engine.arguments["extra"] == {"a": 1, "b": 3, "c": "x"}
    assert profile.name == "own.changed"
    assert layers.origin_of("time.case") == layers.origin_of("engine.arguments.extra.c") == COMMAND_LINE
    assert layers.origin_of("engine.arguments.extra.b") == "own.toml"
    assert find_profile("own", layered).name == "own"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("time.case", "--set is 'time.case'; give KEY=VALUE"),
        ("=3", "--set is '=3'"),
        ("time..case=1s", "give KEY=VALUE"),
        ("name=x", "--set cannot change 'name'"),
        ("extends=x", "--set cannot change 'extends'"),
        ("time.case=10", r"--set time.case: key 'time.case': expected a duration with its unit"),
        ("time.kase=10s", r"--set time.kase: key 'time.kase' is unknown"),
        ("time=10s", r"--set time: key 'time'"),
        ("vendor=amd", r"key 'gpus': expected at least 1 with vendor 'amd'"),
    ],
)
def test_a_change_that_cannot_be(layered: Path, change: str, message: str) -> None:
    with pytest.raises(UsageFault, match=message) as caught:
        find_profile("own", layered, (change,))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"own": 'extends = "own"'}, r"own.toml: own.toml extends own.toml; take one 'extends' out"),
        ({"own": 'extends = "other"', "other": 'extends = "own"'}, "own.toml extends other.toml extends own.toml"),
        (
            {"own": 'extends = "families/a"', "families__a": 'extends = "families/b"', "families__b": 'extends = "families/c"',
             "families__c": ""},
            "own.toml: consists of more than 3 files",
        ),
        ({"own": 'extends = "families/nobody"', "families__some": ""}, "there is no file .*nobody.toml; families: families/some"),
        ({"own": 'extends = "../own"'}, r"key 'extends': expected a profile or a family.*found '\.\./own'"),
        ({"own": 'extends = "/etc/passwd"'}, "key 'extends': expected a profile or a family"),
        ({"own": 'extends = ["a", "b"]'}, "key 'extends': expected a profile or a family"),
        ({"own": 'extends = "families/a"', "families__a": "x = ["}, "families/a.toml: not TOML"),
    ],
)  # fmt: skip
def test_what_extends_wrongly_is_one_line(tmp_path: Path, files: dict[str, str], message: str) -> None:
    with pytest.raises(UsageFault, match=message) as caught:
        read_layers(write(tmp_path, **files) / "own.toml")
    assert "\n" not in str(caught.value)


def test_a_fault_names_the_file_that_holds_it(layered: Path) -> None:
    family = layered / "families" / "family.toml"
    family.write_text(family.read_text().replace('case = "7s"', "case = 7"))
    with pytest.raises(UsageFault, match=r"families/family.toml: key 'time.case': expected a duration"):
        load_profiles(layered)


def test_show_tells_every_value_with_its_origin(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["kit", "profiles", "show", "MI355X-8gpu", "--set", "time.case=10min"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 0
    shown = {}
    for line in capsys.readouterr().out.splitlines():
        left, _, origin = line.rpartition("  # ")
        key, _, value = left.partition(" = ")
        shown[key] = (json.loads(value), origin)
    profile = find_profile("MI355X-8gpu", changes=("time.case=10min",))
    assert {key: value for key, (value, _) in shown.items()} == dict(leaves(profile.model_dump(mode="json")))
    assert shown["gpus"] == (8, "MI355X-8gpu.toml")
    assert shown["architecture"] == ("gfx950", "families/mi35x.toml")
    assert shown["engine.arguments.lora_backend"] == ("triton", "families/rocm.toml")
    assert shown["time.case"] == ("600s", COMMAND_LINE)
    assert shown["container.pids"] == (4096, DEFAULT)


@pytest.mark.parametrize("name", sorted(load_profiles()))
def test_every_profile_survives_its_own_text(name: str) -> None:
    profile = find_profile(name)
    assert Profile.model_validate_json(profile.model_dump_json()) == profile
