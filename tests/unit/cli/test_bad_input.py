"""Bad input is one clear line and exit code 2, 3 or 4; nothing is started and nothing is overwritten."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.jobs import kit, outcome

RUN = ("run", "--profile", "cpu", "--runtime", "local")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("run", "--profile", "mi35x"), ("unknown profile 'mi35x'", "'mi355x'")),
        ((*RUN, "--battery", "kernel"), ("unknown battery 'kernel'", "'kernels'")),
        ((*RUN, "--case", "kernels/triton-grouped-decod/*"), ("no case of profile cpu matches", "did you mean")),
        ((*RUN, "--battery", "kernels", "--case", "multi-lora/*"), ("no case in common",)),
        (("run", "--profile", "cpu", "--runtime", "dokcer"), ("unknown runtime 'dokcer'", "'docker'")),
        ((*RUN, "--mode", "qualifi"), ("unknown mode 'qualifi'", "'qualify'")),
        ((*RUN, "--inject", "adapter-scalin=1.1"), ("unknown fault 'adapter-scalin'", "'adapter-scaling'")),
        ((*RUN, "--inject", "adapter-scaling"), ("needs a strength",)),
        ((*RUN, "--mode", "qualify"), ("needs the pinned image", "--runtime docker")),
        (("run", "--profile", "cpu", "--mode", "qualify", "--battery", "kernels"), ("runs every case",)),
        ((*RUN, "--gpus", "0"), ("profile cpu needs no GPU",)),
        (("run", "--profile", "b200", "--gpus", "0;1"), ("--gpus is '0;1'", "such as 0,1")),
        (("run", "--profile", "b200", "--gpus", "0,1"), ("needs 4 GPUs, --gpus names 2",)),
        (("images", "build", "cdua"), ("unknown image 'cdua'", "'cuda'")),
        (("profiles", "show", "b20"), ("unknown profile 'b20'", "'b200'")),
    ],
)
def test_a_wrong_name_is_one_line_with_the_near_matches(
    tmp_path: Path, arguments: tuple[str, ...], words: tuple[str, ...]
) -> None:
    extra = ("--output", str(tmp_path / "out")) if arguments[0] == "run" else ()
    done = kit(*arguments, *extra)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    for word in words:
        assert word in done.stderr
    assert not (tmp_path / "out").exists()


def test_an_output_folder_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "junit.xml").write_text("old")
    done = kit(*RUN, "--output", str(tmp_path))
    assert done.returncode == 2
    assert "not empty" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["junit.xml"]
    assert (tmp_path / "junit.xml").read_text() == "old"


def test_an_engine_that_does_not_answer_is_exit_3_with_what_to_do(tmp_path: Path) -> None:
    done = kit("run", "--profile", "cpu", "--runtime", "docker", "--output", str(tmp_path / "out"),
               DOCKER_HOST=f"unix://{tmp_path}/none.sock")  # fmt: skip
    assert done.returncode == 3, done.stderr
    assert "no container engine answers" in done.stderr
    assert "--runtime local" in done.stderr
    told = outcome(tmp_path / "out", done.returncode, done.stdout)
    assert set(told.asked.values()) == {"environment"}


def test_a_cache_that_cannot_be_written_is_exit_3(tmp_path: Path) -> None:
    done = kit(*RUN, "--output", str(tmp_path / "out"), KIT_CACHE="/proc/sys/kit")
    assert done.returncode == 3, done.stderr
    assert "KIT_CACHE" in done.stderr


@pytest.mark.parametrize(
    ("profile", "expected"),
    [
        (
            "mi355x",
            (
                "4 × gfx950",
                "kit-rocm:1",
                "--device /dev/kfd",
                "attention_backend = triton",
                "lora-logprob/tiny-qwen3/base",
            ),
        ),
        (
            "b200",
            (
                "4 × sm_100",
                "kit-cuda:1",
                "--device nvidia.com/gpu=<GPU 3>",
                "prefill_attention_backend = fa4",
                "lora-logprob/tiny-qwen3/base",
            ),
        ),
        (
            "h200",
            (
                "1 × sm_90",
                "kit-cuda:1",
                "--device nvidia.com/gpu=<GPU 0>",
                "attention_backend = triton",
                "lora-logprob/tiny-qwen3/base",
            ),
        ),
        ("cpu", ("0 × x86_64", "kit-cpu:1", "--memory 6442450944", "attention_backend = torch_native", "stand-ins")),
    ],
)
def test_a_dry_run_prints_the_whole_plan(profile: str, expected: tuple[str, ...]) -> None:
    done = kit("run", "--profile", profile, "--dry-run", DOCKER_HOST="unix:///nowhere.sock")
    assert done.returncode == 0, done.stderr
    for text in expected:
        assert text in done.stdout
    cases = [
        line for line in done.stdout.splitlines() if line.startswith("  ") and line.count("/") >= 2 and "--" not in line
    ]
    batteries = {line.strip().split("/")[0] for line in cases}
    assert {"lora-logprob", "multi-lora", "kernels"} <= batteries
    if profile != "cpu":
        assert sum("triton-grouped-decode" in line for line in cases) == 24  # 6 shapes × 4 lengths, upstream's list


def test_help_is_quick_and_light() -> None:
    """`kit --help` takes under 0.3 s of CPU time; the best of three, since the machine may be busy."""
    code = "import sys; sys.argv = ['kit', '--help']\nfrom kit.cli import main\ntry: main()\nexcept SystemExit: pass\n"
    code += "print(*sorted({name.split('.')[0] for name in sys.modules}), file=sys.stderr)"
    spent = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert "run" in done.stdout
    assert {"torch", "sglang", "transformers", "triton", "docker"}.isdisjoint(done.stderr.split())
    assert min(spent) < 0.3, spent


def test_planning_needs_neither_torch_nor_sglang() -> None:
    code = "import sys; from kit.host import run, docker_runtime, image_build; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in done.stdout.split()}
    assert {"torch", "sglang", "transformers", "triton", "peft"}.isdisjoint(loaded)
