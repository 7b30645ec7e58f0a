"""Opens kernel libraries: finds their place in the installed stack, and says which one is missing where it has none."""

import importlib
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from kit.attention_spec import GroupedDecode
from kit.errors import EnvironmentFault
from kit.faults.kernels import changed_arguments, changed_module
from kit.subjects.kernels import flash_attention, flashinfer, sglang_wave
from kit.subjects.kernels.flash_attention import FlashAttention
from kit.subjects.kernels.flashinfer import FlashInfer
from kit.subjects.kernels.sglang_triton import MODULES, ROOTS, SGLangTriton
from kit.subjects.kernels.sglang_wave import SGLangWave
from kit.subjects.workspace import Workspace
from kit.synthetic.attention import attention_inputs

_BLACKWELL = 10
"""Major compute capability at which SGLang takes the backend ``cutlass`` for packed prompts."""
_SMALLEST = GroupedDecode(query_heads=1, kv_heads=1, head_dim=64, value_dim=64, lengths=(1,), num_kv_splits=(1,))


def open_sglang_triton(device: str, workspace: Workspace) -> SGLangTriton:
    """The kernels of the installed SGLang, compiled on a GPU and interpreted on a CPU.

    Raises:
        EnvironmentFault: no kernels at a known place, or Triton made the wrong kind of function of them.
        UsageFault: the installed kernels give no place for a fault.
    """
    decode, extend, prefill = (first_importable(name, workspace) for name in MODULES)
    mode = type(decode._fwd_grouped_kernel_stage1).__name__
    if (device == "cpu") != (mode == "InterpretedFunction"):
        raise EnvironmentFault(
            f"Triton made a {mode} of the kernel", "check TRITON_INTERPRET and the version of triton"
        )
    facts = {"kernels": decode.__name__, "triton_mode": mode}
    return SGLangTriton(decode, extend, prefill, device, facts, changed_arguments(workspace.faults))


def first_importable(module: str, workspace: Workspace) -> ModuleType:
    """A module of SGLang's Triton kernels, wherever the installed version keeps it, with the faults of a self-test in it.

    Raises:
        EnvironmentFault: at no known place. UsageFault: it gives no place for a fault.
    """
    for name in (f"{root}.{module}" for root in ROOTS):
        try:
            return changed_module(name, workspace.faults, workspace.scratch) or importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not name.startswith(error.name):
                raise
    raise EnvironmentFault(f"this SGLang has no Triton {module} at a known place", "use the image of the profile")


def open_sglang_wave() -> SGLangWave:
    """Wave's kernels in the installed SGLang."""
    decode, extend, prefill = (importlib.import_module(f"{sglang_wave.ROOT}.{name}") for name in MODULES)
    return SGLangWave(decode, extend, prefill, {"kernels": sglang_wave.ROOT})


def open_flash_attention(version: int, device: str = "cuda") -> FlashAttention:
    """FlashAttention in the installed SGLang, which imports its kernels when it is first called: so it is called once.

    Raises:
        ImportError: it is not there.
    """
    functions = importlib.import_module(flash_attention.MODULE)
    library = FlashAttention(functions, version, {"kernels": f"{flash_attention.MODULE}, version {version}"}, device)
    try:
        library.attend(_SMALLEST, attention_inputs(_SMALLEST), "nan")
    except ImportError:
        raise
    except Exception:
        traceback.print_exc()  # the kernels are there; the cases say what is wrong with them
    return library


def open_flashinfer() -> FlashInfer:
    """FlashInfer, and what SGLang's backend has beside it.

    Raises:
        ImportError: it is not there.
    """
    import torch

    wrappers, backend = importlib.import_module("flashinfer"), importlib.import_module(flashinfer.BACKEND)
    ragged = "cutlass" if torch.cuda.get_device_capability()[0] == _BLACKWELL else "auto"
    facts = {"kernels": f"flashinfer {wrappers.__version__}, packed prompts by backend {ragged}"}
    return FlashInfer(wrappers, backend._safe_merge_state, ragged, facts)


@contextmanager
def installed(library: str) -> Iterator[None]:
    """What does not import in here is the environment's fault, once for the session.

    Raises:
        EnvironmentFault: it names the library, and what did not import.
    """
    try:
        yield
    except ImportError as error:
        problem = f"the profile asks for the kernels of {library}, which are not installed ({error})"
        raise EnvironmentFault(
            problem, "use the image of the profile, or take the library out of key 'kernels.libraries'"
        ) from error
