import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest

from kit.process import exit_reason, memory_kills


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (0, "exit code 0"),
        (3, "exit code 3"),
        (-9, "killed by SIGKILL"),
        (-11, "killed by SIGSEGV"),
        (-63, "killed by signal 63"),
    ],
)
def test_exits_in_words(code: int, words: str) -> None:
    assert exit_reason(code) == words


def test_memory_kills_are_read_from_either_cgroup_version(tmp_path: Path) -> None:
    v1, v2 = tmp_path / "memory.oom_control", tmp_path / "memory.events"
    assert memory_kills((v2, v1)) == 0
    v1.write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n")
    assert memory_kills((v2, v1)) == 2
    v2.write_text("low 0\nhigh 0\nmax 7\noom 5\noom_kill 3\noom_group_kill 0\n")
    assert memory_kills((v2, v1)) == 3


def python(code: str) -> "subprocess.Popen[str]":
    return subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True)


def read_pid(process: "subprocess.Popen[str]") -> int:
    assert process.stdout is not None
    return int(process.stdout.readline())


def gone(pid: int, seconds: float = 5) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.02)
    return False


def test_a_child_dies_with_its_parent() -> None:
    parent = python(
        """
        import os, subprocess, sys, time
        child = subprocess.Popen([sys.executable, "-c",
            "import os, time; from kit.process import die_with_parent; die_with_parent(os.getppid());"
            "print(os.getpid(), flush=True); time.sleep(600)"])
        time.sleep(600)
        """
    )
    pid = read_pid(parent)
    assert psutil.pid_exists(pid)
    parent.kill()
    parent.wait()
    assert gone(pid)


DAEMON = """
import os, signal, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print(os.getpid(), flush=True)
        time.sleep(600)
    os._exit(0)
os.wait()
"""


def test_every_descendant_is_ended_even_one_that_left_its_group_and_ignores_sigterm(tmp_path: Path) -> None:
    (tmp_path / "daemon.py").write_text(DAEMON)
    parent = python(
        f"""
        import subprocess, sys
        from kit.process import adopt_orphans, end_descendants
        adopt_orphans()
        middle = subprocess.Popen([sys.executable, {str(tmp_path / "daemon.py")!r}], stdout=subprocess.PIPE, text=True)
        pid = int(middle.stdout.readline())
        middle.wait()
        ended = end_descendants()
        print(pid, flush=True)
        print(len([text for text in ended if text.startswith(str(pid) + " ")]), flush=True)
        """
    )
    pid, named = read_pid(parent), read_pid(parent)
    assert parent.wait() == 0
    assert named == 1
    assert gone(pid, 0.5)


def test_stop_signals_are_noted_and_the_old_handlers_come_back() -> None:
    from kit.host.supervisor import stop_signals

    before = signal.getsignal(signal.SIGTERM)
    with stop_signals() as stop:
        assert not stop.made
        signal.raise_signal(signal.SIGTERM)
        assert stop.signal is signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) == before
