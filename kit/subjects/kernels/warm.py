"""Compiles a session's kernels ahead, in many processes at once, into the cache of Triton or FlashInfer on the disk.

One kernel takes about a second to compile, and 500 cases need some hundreds: one after the other they would take minutes. Each process
opens the library on its own and launches its share of the kernels on short inputs. Whatever goes wrong here is left to the cases, which
compile what is missing.
"""

import contextlib
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Iterable
from pathlib import Path

from kit.attention_spec import Extend, GroupedDecode, Prefill
from kit.check_spec import CheckSpec
from kit.measurement import Record
from kit.plan import KernelLibrary, KernelSession
from kit.process import die_with_parent
from kit.subjects.workspace import Workspace
from kit.synthetic.attention import attention_inputs

MOST_PROCESSES = 16
MOST_SECONDS = 240.0
"""After this the rest is compiled by the cases that need it."""
_COMPILED: dict[KernelLibrary, int] = {"triton": 8, "flashinfer": 1}
"""Libraries that compile when they are called, and from how many variants on it is worth to start processes."""
_TOKENS = 33


class Share(Record):
    """What one process compiles."""

    session: KernelSession
    specs: tuple[GroupedDecode | Extend | Prefill, ...]


def compile_ahead(session: KernelSession, specs: Iterable[CheckSpec]) -> dict[str, str]:
    """Fill the library's cache for these cases; says as a fact how much was asked for, of how many processes, in which time."""
    short = variants(spec for spec in specs if isinstance(spec, GroupedDecode | Extend | Prefill))
    if session.library == "flashinfer":
        short = _one_of_each_module(short)
    if session.interpreted or session.library not in _COMPILED or len(short) < _COMPILED[session.library]:
        return {}
    start = time.monotonic()
    count = min(MOST_PROCESSES, len(os.sched_getaffinity(0)), len(short))
    children = [_start(Share(session=session, specs=short[number::count])) for number in range(count)]
    failed = sum(_ended(child, start + MOST_SECONDS) != 0 for child in children)
    told = f"{len(short)} variants by {count} processes in {time.monotonic() - start:.0f} s"
    return {"compiled_ahead": told + (f"; {failed} processes failed" if failed else "")}


def variants(specs: Iterable[GroupedDecode | Extend | Prefill]) -> tuple[GroupedDecode | Extend | Prefill, ...]:
    """One short case for all that a kernel is compiled alike for: what differs is length, content and place of the tokens."""
    short = {}
    for spec in specs:
        same: dict[str, object] = {
            "content": "random",
            "seed": 0,
            "upstream": False,
            "lengths": (_TOKENS,) * min(len(spec.lengths), 2),
        }
        if isinstance(spec, GroupedDecode | Extend):
            same |= {"pages": "ascending", "first_slot": 0}
        if isinstance(spec, GroupedDecode):
            same |= {
                "window": None,
                "num_kv_splits": (1,),
                "engine_window": False,
            }  # numbers and lists of slots at run time
        if isinstance(spec, Extend):
            same["prefixes"] = (_TOKENS,) * min(len(spec.lengths), 2)
        changed = spec.model_copy(update=same)
        short[changed.model_dump_json()] = changed
    return tuple(short.values())


def _one_of_each_module(
    specs: Iterable[GroupedDecode | Extend | Prefill],
) -> tuple[GroupedDecode | Extend | Prefill, ...]:
    """FlashInfer's modules hold many kernels; each is compiled on all cores, and once, whoever else waits for it."""
    from kit.subjects.kernels.flashinfer import module_of

    return tuple({module_of(spec): spec for spec in specs}.values())


def _start(share: Share) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "kit.subjects.kernels.warm", str(os.getpid())]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, text=True)
    assert child.stdin is not None
    with contextlib.suppress(BrokenPipeError), child.stdin as pipe:
        pipe.write(share.model_dump_json())
    return child


def _ended(child: subprocess.Popen[str], deadline: float) -> int:
    try:
        return child.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        child.kill()
        return child.wait()


def main() -> None:
    """``python -m kit.subjects.kernels.warm PARENT``, with a share on standard input."""
    die_with_parent(int(sys.argv[1]))
    share = Share.model_validate_json(sys.stdin.read())
    failed = _launch(share)
    if failed:
        raise SystemExit(f"{failed} of {len(share.specs)} variants could not be launched; their cases will say more")


def _launch(share: Share) -> int:
    from kit.standins import activate
    from kit.subjects.kernels.subject import KernelSubject, open_kernels

    stand_ins = activate(share.session.stand_ins)
    subject = open_kernels(share.session, stand_ins, Workspace(Path(), Path()))
    assert isinstance(subject, KernelSubject)
    library = subject.library
    failed = 0
    for spec in share.specs:
        try:
            if library.refuses(spec) is None:
                library.attend(spec, attention_inputs(spec), "nan")
        except Exception:
            traceback.print_exc()
            failed += 1
    return failed


if __name__ == "__main__":
    main()
