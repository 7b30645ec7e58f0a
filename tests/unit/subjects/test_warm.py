"""What is compiled ahead of a session's cases."""

import subprocess
import sys

from kit.attention_spec import Extend, GroupedDecode
from kit.plan import KernelSession
from kit.subjects.kernels.warm import Share, compile_ahead, variants
from kit.synthetic.attention_space import generated

SIZES = {"query_heads": 4, "kv_heads": 2, "head_dim": 16, "value_dim": 16}
ON_GPU = KernelSession(library="triton", interpreted=False)


def test_cases_that_differ_in_lengths_content_and_places_share_a_kernel() -> None:
    first = GroupedDecode(**SIZES, lengths=(5, 700), pages="beyond-16-bits", content="large", seed=3)
    second = GroupedDecode(**SIZES, lengths=(1, 2), window=7)
    other = GroupedDecode(**SIZES, lengths=(1, 2), sinks=True)
    assert len(variants([first, second])) == 1
    assert len(variants([first, second, other])) == 2


def test_a_window_is_compiled_into_the_extend_kernel() -> None:
    specs = [Extend(**SIZES, prefixes=(9,), lengths=(3,), window=window) for window in (None, 7, 31)]
    assert len(variants(specs)) == 3


def test_what_is_launched_is_small() -> None:
    specs = [case.spec for kind in ("decode", "extend", "unified", "prefill") for case in generated(kind, "full")]
    short = variants(specs)
    assert 200 < len(short) <= len(specs)
    assert max(sum(spec.lengths) for spec in short) <= 33 * 17


def test_an_interpreter_compiles_nothing() -> None:
    specs = [case.spec for case in generated("decode", "interpreter")]
    assert compile_ahead(KernelSession(library="triton", interpreted=True), specs) == {}
    assert compile_ahead(ON_GPU, specs[:2]) == {}


def test_a_process_says_that_it_could_not_open_the_library() -> None:
    """On a machine without a GPU the cases themselves will say why."""
    share = Share(
        session=KernelSession(library="torch", interpreted=False), specs=(GroupedDecode(**SIZES, lengths=(2,)),)
    )
    command = [
        sys.executable,
        "-c",
        "import os, sys; sys.argv[1:] = [str(os.getppid())]; from kit.subjects.kernels.warm import main; main()",
    ]
    done = subprocess.run(command, input=share.model_dump_json(), capture_output=True, text=True, timeout=120)
    assert done.returncode != 0
