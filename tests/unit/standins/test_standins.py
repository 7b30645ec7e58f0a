"""Every stand-in in a process of its own, as sessions use them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import kit.standins

FOLDER = Path(kit.standins.__file__).parent
ROOT = FOLDER.parent.parent


def python(code: str, *path: Path) -> str:
    entries = os.pathsep.join(str(entry) for entry in (*path, ROOT))
    environment = {**os.environ, "PYTHONPATH": entries}
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


@pytest.mark.parametrize(
    ("stand_in", "call", "message"),
    [
        (
            "sgl_kernel",
            "from sgl_kernel import silu_and_mul as f",
            "sgl_kernel is kit's stand-in, without 'silu_and_mul'",
        ),
        (
            "torchvision",
            "from torchvision.io import decode_jpeg as f",
            "torchvision is kit's stand-in, without 'decode_jpeg'",
        ),
        ("torchvision", "from torchvision.transforms.v2 import Resize as f", "kit's stand-in, without 'Resize'"),
        ("torchvision", "from torchvision.transforms.v2.functional import resize as f", "stand-in, without 'resize'"),
    ],
)
def test_what_is_not_supported_imports_and_says_so_when_called(stand_in: str, call: str, message: str) -> None:
    code = f"{call}\ntry:\n    f(1)\nexcept RuntimeError as error:\n    print(error)"
    assert message in python(code, FOLDER / stand_in)


def test_unknown_dunder_names_are_missing_as_python_expects() -> None:
    assert python("import sgl_kernel; print(hasattr(sgl_kernel, '__path_hook__'))", FOLDER / "sgl_kernel") == "False"


def test_cache_slots_are_copied_in_every_layer() -> None:
    code = """
import numpy as np, sgl_kernel
keys, values = [np.arange(4) for _ in range(2)], [np.arange(4) * 10 for _ in range(2)]
sgl_kernel.copy_all_layer_kv_cache_cpu(keys, values, np.array([0, 1]), np.array([2, 3]))
print([k.tolist() for k in keys], values[1].tolist())
"""
    assert python(code, FOLDER / "sgl_kernel") == "[[2, 3, 2, 3], [2, 3, 2, 3]] [20, 30, 20, 30]"


def test_activation_reaches_children_and_says_what_is_in_use(tmp_path: Path) -> None:
    code = """
import subprocess, sys
from kit.standins import activate
print(activate(["sgl_kernel"])["stand_in.sgl_kernel"])
sys.stdout.flush()
subprocess.run([sys.executable, "-c", "import sgl_kernel; print(sgl_kernel.__version__)"])
"""
    (tmp_path / "nothing").mkdir()
    said, version = python(code, tmp_path / "nothing").splitlines()
    if "not installed" in said:
        assert said == "in use: the real module is not installed"
        assert version.endswith("kit.standin")


@pytest.mark.parametrize(
    ("body", "said", "wins"),
    [
        ("REAL = True", "not in use: the real module at", "True"),
        ("raise OSError('no operator nms')", "does not import: OSError: no operator nms", "False"),
    ],
)
def test_a_real_module_that_works_is_never_hidden(tmp_path: Path, body: str, said: str, wins: str) -> None:
    (tmp_path / "torchvision").mkdir()
    (tmp_path / "torchvision/__init__.py").write_text(body)
    code = """
from kit.standins import activate
print(activate(["torchvision"])["stand_in.torchvision"])
import torchvision
print(hasattr(torchvision, "REAL"))
"""
    fact, real = python(code, tmp_path).splitlines()
    assert said in fact
    assert real == wins


FAKE_TORCH = """
class accelerator:
    is_available = staticmethod(lambda: {accelerator})
class Tensor:
    def pin_memory(self):
        raise RuntimeError("no pinned memory")
def _factory(*args, pin_memory=False):
    if pin_memory:
        raise RuntimeError("no pinned memory")
    return args
arange = empty = empty_like = full = ones = tensor = zeros = zeros_like = _factory
"""


def fake_torch(folder: Path, accelerator: bool) -> Path:
    (folder / "torch/utils").mkdir(parents=True)
    (folder / "torch/__init__.py").write_text(FAKE_TORCH.format(accelerator=accelerator))
    (folder / "torch/utils/__init__.py").write_text("")
    (folder / "torch/utils/_device.py").write_text("def _device_constructors(): pass")
    return folder


def test_pinned_memory_becomes_ordinary_memory_without_an_accelerator(tmp_path: Path) -> None:
    code = "import torch; print(torch.zeros(3, pin_memory=True), torch.Tensor.pin_memory(5))"
    assert python(code, FOLDER / "pinned_memory", fake_torch(tmp_path, accelerator=False)) == "(3,) 5"


def test_pinned_memory_is_left_alone_beside_an_accelerator(tmp_path: Path) -> None:
    code = "import torch\ntry:\n    torch.zeros(3, pin_memory=True)\nexcept RuntimeError as error:\n    print(error)"
    assert python(code, FOLDER / "pinned_memory", fake_torch(tmp_path, accelerator=True)) == "no pinned memory"


def test_a_sitecustomize_that_is_hidden_still_runs(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('the other one')")
    assert python("print('program')", FOLDER / "pinned_memory", tmp_path).splitlines() == ["the other one", "program"]
