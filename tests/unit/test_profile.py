from pathlib import Path

import pytest

from kit.errors import ExitCode, UsageFault
from kit.profile import Profile, find_profile, load_profiles

GOOD = Path("profiles/cpu.toml")


@pytest.mark.parametrize(
    ("typed", "name", "vendor", "architecture", "gpus"),
    [
        ("cpu", "cpu", "cpu", "x86_64", 0),
        ("mi355x", "MI355X-4gpu", "amd", "gfx950", 4),
        ("MI355X-4GPU", "MI355X-4gpu", "amd", "gfx950", 4),
        ("b200", "B200-4gpu", "nvidia", "sm_100", 4),
        ("mi300x", "MI300X-1gpu", "amd", "gfx942", 1),
        ("mi325x", "MI325X-1gpu", "amd", "gfx942", 1),
        ("mi350x", "MI350X-1gpu", "amd", "gfx950", 1),
        ("MI355X-8gpu", "MI355X-8gpu", "amd", "gfx950", 8),
        ("h100", "H100-1gpu", "nvidia", "sm_90", 1),
        ("H200-2gpu", "H200-2gpu", "nvidia", "sm_90", 2),
        ("xpu", "XPU-1gpu", "intel", "xpu", 1),
        ("B200-4gpu", "B200-4gpu", "nvidia", "sm_100", 4),
        ("h200-1gpu", "H200-1gpu", "nvidia", "sm_90", 1),
    ],
)
def test_profiles_are_found_by_name_and_alias_in_any_case(
    typed: str, name: str, vendor: str, architecture: str, gpus: int
) -> None:
    profile = find_profile(typed)
    assert (profile.name, profile.vendor, profile.architecture, profile.gpus) == (name, vendor, architecture, gpus)


def test_upstream_settings_of_the_vendors() -> None:
    """sglang PR 38791: Triton attention for prefill and decode on ROCm, flashinfer with fa4 on CUDA; LoRA backend triton."""
    amd, nvidia = find_profile("mi355x").engine.arguments, find_profile("b200").engine.arguments
    keys = ("attention_backend", "prefill_attention_backend", "decode_attention_backend", "lora_backend")
    assert [amd[key] for key in keys] == ["triton", "triton", "triton", "triton"]
    assert [nvidia[key] for key in keys] == ["flashinfer", "fa4", "fa4", "triton"]


def test_an_unknown_profile_names_the_near_ones() -> None:
    with pytest.raises(UsageFault, match=r"unknown profile 'mi35x'; did you mean .*mi355x") as caught:
        find_profile("mi35x")
    assert caught.value.exit_code == ExitCode.USAGE == 2


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('title = "', 'titel = "', "key 'title' is missing|key 'titel' is unknown"),
        ("gpus = 0", 'gpus = "0"', "key 'gpus': .*integer.*found \"0\""),
        ("gpus = 0", "gpus = -1", "key 'gpus': .*greater than or equal to 0"),
        ('memory = "6GiB"', "memory = 6", "key 'container.memory': .*size with its unit"),
        ('memory = "6GiB"', 'memory = "6 lots"', "key 'container.memory': .*unit"),
        ('case = "6min"', "case = 90", "key 'time.case': .*duration with its unit"),
        ('case = "6min"', 'case = "90 lightyears"', "key 'time.case': .*duration with its unit"),
        ('vendor = "cpu"', 'vendor = "apple"', "key 'vendor': .*'cpu', 'amd', 'nvidia' or 'intel'.*apple"),
        ("[container]", "[container", "line "),
        ('dtype = "float32"', 'dtype = "float8"', "key 'engine.dtype'"),
        ('"lora-logprob", ', '"lora-logprobs", ', "key 'mandatory.0'"),
        ('run = "45min"', 'run = "99999999999999h"', "key 'time.run': .*at most 7 days"),
        ('run = "45min"', f'run = "{"9" * 400}h"', "key 'time.run': .*at most 7 days"),
        ('run = "45min"', 'run = "169h"', "key 'time.run': .*at most 7 days"),
        ('run = "45min"', 'run = "0s"', "key 'time.run': expected a duration above 0"),
        ('case = "6min"', 'case = "0.0000001ms"', "key 'time.case': .*above 0"),
        ('memory = "6GiB"', 'memory = "0GiB"', "key 'container.memory': .*at least 64MiB"),
        ('memory = "6GiB"', 'memory = "63MiB"', "key 'container.memory': .*at least 64MiB"),
        ('memory = "6GiB"', 'memory = "6"', "key 'container.memory': .*size with its unit"),
        ('memory = "6GiB"', 'memory = "99999999999EiB"', "key 'container.memory': .*at most 1048576GiB"),
        ('memory = "6GiB"', f'memory = "{"9" * 400}.5GiB"', "key 'container.memory': .*size with its unit"),
        ('shm = "1GiB"', 'shm = "0MiB"', "key 'container.shm': .*at least 1MiB"),
        ("pids = 2048", 'devices = ["/dev"]', "key 'container.devices' is unknown"),
        ("pids = 2048", 'capabilities = ["SYS_ADMIN"]', "key 'container.capabilities.0': .*'SYS_PTRACE'.*SYS_ADMIN"),
        ("pids = 2048", "pids = 99999999999", "key 'container.pids': .*less than or equal"),
        ("pids = 2048", f"pids = {'9' * 5000}", "not TOML: a number has too many digits"),
        (
            "mem_fraction_static = 0.3",
            "mem_fraction_static = nan",
            "key 'engine.arguments.mem_fraction_static': .*finite",
        ),
        ("mem_fraction_static = 0.3", "x = [1, {y = -inf}]", r"key 'engine.arguments.x.1.y': .*finite"),
        ("gpus = 0", "gpus = 4", "key 'gpus': expected 0 with vendor 'cpu', found 4"),
        ('vendor = "cpu"', 'vendor = "amd"', "key 'gpus': expected at least 1 with vendor 'amd', found 0"),
        ('["lora-logprob", "multi-lora", "kernels"]', "[]", "key 'mandatory': expected at least one battery"),
        (
            'libraries = ["triton", "torch", "lora-triton", "lora-csgmv"]',
            "libraries = []",
            "key 'kernels.libraries': expected at least one",
        ),
        ("mem_fraction_static = 0.3", f"x = {'[' * 3000}{']' * 3000}", "nested too deep"),
        ("mem_fraction_static = 0.3", f"{'.'.join('x' * 3000)} = 1", "nested too deep"),
        ("mem_fraction_static = 0.3", f"x = {'[' * 300}{']' * 300}", "nested too deep"),
    ],
)
def test_a_damaged_file_is_one_line_with_file_and_key(tmp_path: Path, old: str, new: str, message: str) -> None:
    text = GOOD.read_text()
    assert old in text
    path = tmp_path / "cpu.toml"
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(UsageFault, match=message) as caught:
        load_profiles(tmp_path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "Value error" not in str(caught.value)
    assert caught.value.exit_code == 2


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "cpu.toml").write_bytes(b"name = '\xff'")
    with pytest.raises(UsageFault, match="not UTF-8"):
        load_profiles(tmp_path)


def test_two_profiles_cannot_claim_one_name(tmp_path: Path) -> None:
    (tmp_path / "cpu.toml").write_text(GOOD.read_text())
    (tmp_path / "other.toml").write_text(
        GOOD.read_text().replace('name = "cpu"', 'name = "other"\naliases = ["CPU"]', 1)
    )
    with pytest.raises(UsageFault, match="'CPU' already belongs to 'cpu'"):
        load_profiles(tmp_path)


def test_a_file_is_named_after_its_profile(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(GOOD.read_text())
    with pytest.raises(UsageFault, match="name the file after the profile"):
        load_profiles(tmp_path)


def test_units_are_understood() -> None:
    cpu = find_profile("cpu")
    assert cpu.container.memory == 6 * 2**30
    assert cpu.time.run.total_seconds() == 2700
    assert cpu.model_dump(mode="json")["time"]["run"] == "2700s"
    assert Profile.model_validate_json(cpu.model_dump_json()) == cpu


@pytest.mark.parametrize("typed", ["168h", "0.001ms", "1.5min", "604799.5s", "0.25s"])
def test_a_duration_survives_its_own_text(tmp_path: Path, typed: str) -> None:
    (tmp_path / "cpu.toml").write_text(GOOD.read_text().replace('run = "45min"', f'run = "{typed}"', 1))
    profile = find_profile("cpu", tmp_path)
    assert Profile.model_validate_json(profile.model_dump_json()) == profile
