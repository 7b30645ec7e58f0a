"""Reading a recorded sample: every form that it may have, and that nothing in it is ever run."""

import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from kit.checks.recorded_sample import SAMPLE_FILE, load_sample
from kit.errors import ExitCode, ImageFault

TOKENS = [1, 151_935, 0, 77]
TRAINING = [-0.5, -1.25, -3.0]
SAMPLING = [-0.5, -1.5, -2.75]


def saved(folder: Path, **entries: object) -> Path:
    path = folder / SAMPLE_FILE
    sample = {"tokens": TOKENS, "training_logprobs": TRAINING, "sampling_logprobs": SAMPLING}
    torch.save(sample | entries, path)
    return path


def refused(path: Path, *words: str) -> None:
    with pytest.raises(ImageFault) as caught:
        load_sample(path)
    assert caught.value.exit_code is ExitCode.IMAGE
    for word in (str(path), *words):
        assert word in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "entries",
    [
        {},
        {"tokens": [TOKENS]},
        {"tokens": torch.tensor(TOKENS)},
        {"tokens": torch.tensor([TOKENS], dtype=torch.int32)},
        {"tokens": [torch.tensor(TOKENS)]},
        {"tokens": tuple(TOKENS)},
        {"training_logprobs": torch.tensor(TRAINING), "sampling_logprobs": torch.tensor([SAMPLING])},
        {"training_logprobs": torch.tensor(TRAINING, dtype=torch.bfloat16)},
        {"training_logprobs": torch.tensor(TRAINING, dtype=torch.float64, requires_grad=True)},
        {"training_logprobs": [torch.tensor(value) for value in TRAINING]},
        {"further": "keys do no harm"},
    ],
)
def test_every_form_gives_the_same_sample(tmp_path: Path, entries: dict[str, object]) -> None:
    sample = load_sample(saved(tmp_path, **entries))
    for array, expected, dtype in (
        (sample.tokens, TOKENS, np.int64),
        (sample.training, TRAINING, np.float64),
        (sample.sampling, SAMPLING, np.float64),
    ):
        assert array.dtype == dtype
        assert array.tolist() == expected


def test_float32_values_arrive_as_they_are(tmp_path: Path) -> None:
    values = torch.rand(3, generator=torch.Generator().manual_seed(7))
    assert load_sample(saved(tmp_path, training_logprobs=values)).training.tolist() == [float(v) for v in values]


@pytest.mark.parametrize("legacy", [False, True])
def test_a_file_that_would_run_code_is_refused_and_runs_none(tmp_path: Path, legacy: bool) -> None:
    class Evil:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return exec, (f"open({str(tmp_path / 'ran')!r}, 'w')",)

    path = tmp_path / SAMPLE_FILE
    entries = {"tokens": TOKENS, "training_logprobs": TRAINING, "sampling_logprobs": Evil()}
    torch.save(entries, path, _use_new_zipfile_serialization=not legacy)
    refused(path, "could run code")
    assert not (tmp_path / "ran").exists()
    torch.load(path, weights_only=False)
    assert (tmp_path / "ran").exists()  # so the file was a real trap


def test_a_plain_pickle_and_numpy_objects_are_refused(tmp_path: Path) -> None:
    path = tmp_path / SAMPLE_FILE
    path.write_bytes(pickle.dumps(Path("/"), protocol=2))
    refused(path, "could run code")
    refused(saved(tmp_path, training_logprobs=np.array(TRAINING)), "could run code")


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ({"training_logprobs": TRAINING[:-1]}, "training_logprobs holds 2 values for 4 tokens, expected 3"),
        ({"sampling_logprobs": [*SAMPLING, 0.0]}, "sampling_logprobs holds 4 values for 4 tokens, expected 3"),
        ({"tokens": []}, "tokens holds 0 values"),
        ({"tokens": [7], "training_logprobs": [], "sampling_logprobs": []}, "tokens holds 1 values"),
        ({"tokens": [1, 2.5, 3, 4]}, "no token id"),
        ({"tokens": [1, -2, 3, 4]}, "no token id"),
        ({"tokens": [1, 2**40, 3, 4]}, "no token id"),
        ({"tokens": [TOKENS, TOKENS]}, "tokens has the shape [2, 4]"),
        ({"tokens": [[1, 2], [3]]}, "tokens is not a list of numbers"),
        ({"tokens": "abcd"}, "tokens is not a list of numbers"),
        ({"tokens": ["1", "2", "3", "4"]}, "tokens is not a list of numbers"),
        ({"tokens": None}, "tokens is not a list of numbers"),
        ({"tokens": [True, True, True, True]}, "tokens is not a list of numbers"),
        ({"training_logprobs": torch.tensor([1j, 2j, 3j])}, "training_logprobs is not a list of numbers"),
        ({"training_logprobs": 3.0}, "training_logprobs has the shape []"),
        ({"training_logprobs": [-1.0, float("nan"), -1.0]}, "training_logprobs holds a value that is not finite"),
        ({"sampling_logprobs": torch.tensor([-1.0, -torch.inf, -1.0])}, "sampling_logprobs holds a value that is not"),
        ({"training_logprobs": [-1.0, 10**400, -1.0]}, "training_logprobs is not a list of numbers"),
    ],
)
def test_what_is_no_sample_is_refused(tmp_path: Path, entries: dict[str, object], words: str) -> None:
    refused(saved(tmp_path, **entries), words)


def test_other_contents(tmp_path: Path) -> None:
    path = tmp_path / SAMPLE_FILE
    for content in ([1, 2], {"tokens": TOKENS}, torch.ones(3)):
        torch.save(content, path)
        refused(path, "expected the keys tokens, training_logprobs, sampling_logprobs")


def test_a_damaged_missing_or_empty_file(tmp_path: Path) -> None:
    path = saved(tmp_path)
    whole = path.read_bytes()
    for damaged in (whole[: len(whole) // 2], b"", b"version https://git-lfs", b"\0" * 100):
        path.write_bytes(damaged)
        refused(path)
    path.unlink()
    refused(path, "No such file")


def test_the_module_is_light() -> None:
    code = "import sys, kit.checks.recorded_sample; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "False"
