"""An engine that dies inside `mortal` is measured and started again; outside it ends the process, as ever."""

import os
import signal
import subprocess
import sys
import textwrap

import pytest

from kit.paths import package_folder

# The module stands where sglang would: its engine is a child process that does what it is asked, and waits for an answer in asyncio.
PROGRAM = """
import asyncio, multiprocessing, os, signal, sys, threading, time, types

def engine(asked):
    while True:
        how = asked.recv()
        if how == "answer":
            asked.send("here")
        elif how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        else:  # as a scheduler of SGLang does on an exception
            os.kill(os.getppid(), signal.SIGQUIT)
            time.sleep(600)

class Engine:
    def __init__(self, how_many):
        asked, self._there = context.Pipe()
        self._asked, self.started = asked, how_many.append(1)
        self._process = context.Process(target=engine, args=(self._there,), name="scheduler")
        self._process.start()

    def ask(self, what):
        async def wait():
            while not self._asked.poll():
                await asyncio.sleep(0.05)
            return self._asked.recv()
        self._asked.send(what)
        return asyncio.get_event_loop().run_until_complete(wait())

    def shutdown(self):
        self._process.kill()

def notice(process):  # as SGLang's own monitor does
    while process.exitcode is None:
        time.sleep(0.001)
    while True:
        os.kill(os.getpid(), signal.SIGQUIT)
        time.sleep(0.001)

if __name__ == "__main__":
    from kit.subjects.engine_life import EngineDied, EngineLife
    context = multiprocessing.get_context("spawn")
    sys.modules["sglang"] = types.SimpleNamespace(Engine=Engine)
    asyncio.set_event_loop(asyncio.new_event_loop())
    starts = []
    with EngineLife({"how_many": starts}, lambda engine: print("warm:", engine.ask("answer"))) as life:
        for how in sys.argv[1:]:
            if how == "outside":
                life.engine.ask("kill")
            if how == "noticed":
                threading.Thread(target=notice, args=(life.engine._process,), daemon=True).start()
                life.engine.ask("kill")
            try:
                with life.mortal(how):
                    print(how, life.engine.ask(how))
            except EngineDied:
                print(how, "died", flush=True)
        print("alive:", life.engine.ask("answer"), len(starts), sorted(life.died_of))
    import psutil
    left = psutil.Process().children(recursive=True)
    print("left:", [" ".join(child.cmdline()) for child in left if "resource_tracker" not in " ".join(child.cmdline())])
"""


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(textwrap.dedent(PROGRAM))
    return path


def run(program, *ways: str) -> subprocess.CompletedProcess:
    environment = {**os.environ, "PYTHONPATH": str(package_folder().parent)}
    command = [sys.executable, "-W", "ignore", str(program), *ways]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)


def test_each_death_is_told_and_the_next_use_finds_another_engine(program) -> None:
    done = run(program, "answer", "kill", "failure", "answer", "kill")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:-1] == [
        "warm: here", "answer here", "kill died", "warm: here", "failure died", "warm: here", "answer here", "kill died",
        "warm: here", "alive: here 4 ['failure', 'kill']", "left: []",
    ]  # fmt: skip


def test_a_death_outside_ends_the_process_in_the_same_way(program) -> None:
    done = run(program, "answer", "outside")
    assert done.returncode == -signal.SIGKILL
    assert "(scheduler) died by SIGKILL; ending the session" in done.stderr
    assert "alive" not in done.stdout


def test_it_is_that_death_also_where_sglang_notices_it_at_the_same_time(program) -> None:
    done = run(program, "answer", "noticed")
    assert done.returncode == -signal.SIGKILL, done.stderr
