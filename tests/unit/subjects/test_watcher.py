"""The death of an engine's process ends the session at once, and tells why."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import psutil
import pytest

from kit.paths import package_folder

PROGRAM = """
import multiprocessing, os, signal, subprocess, sys, time
from kit.process import end_descendants
from kit.subjects.watcher import watched_children

def engine(how):
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    time.sleep(1.0)
    exec(how)

if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    context.Process(target=engine, args=(sys.argv[1],), name="scheduler").start()
    with watched_children():
        time.sleep(float(sys.argv[2]))
    print("left in peace", flush=True)
    end_descendants()
    os._exit(0)
"""


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(textwrap.dedent(PROGRAM))
    return path


def run(program, how: str, seconds: float) -> subprocess.CompletedProcess:
    environment = {**os.environ, "PYTHONPATH": str(package_folder().parent)}
    command = [sys.executable, str(program), how, str(seconds)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    ("how", "code", "said"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL, "died by SIGKILL"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", -signal.SIGSEGV, "died by SIGSEGV"),
        ("os.abort()", -signal.SIGABRT, "died by SIGABRT"),
        ("os.kill(os.getpid(), signal.SIGTERM)", 128 + signal.SIGTERM, "died by SIGTERM"),
        ("os._exit(3)", 3, "ended with exit code 3"),
        ("os._exit(0)", 1, "ended with exit code 0"),
    ],
)
def test_the_session_dies_as_its_engine_did(program, how: str, code: int, said: str) -> None:
    start = time.monotonic()
    ended = run(program, how, 600)
    assert ended.returncode == code, ended.stderr
    assert "kit: process" in ended.stderr and "of the engine (scheduler)" in ended.stderr
    assert said in ended.stderr
    assert time.monotonic() - start < 30
    assert not [p for p in psutil.process_iter(["cmdline"]) if str(program) in " ".join(p.info["cmdline"] or [])]


def test_without_a_death_nothing_happens(program) -> None:
    ended = run(program, "os._exit(0) if False else time.sleep(2)", 0.5)
    assert (ended.returncode, ended.stdout) == (0, "left in peace\n")
