"""Runs the real ``kit run`` as a user does, watches its events, and reads what it wrote."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil
from junitparser import Error, Failure, JUnitXml, Skipped
from lxml import etree

from kit.events import AnyEvent, CaseStarted, EventReader
from kit.plan import Plan
from kit.results.model import RunResult, load_result
from kit.results.stored import parse_run
from kit.results.sums import faults_in_sums, read_folder
from kit.results.verify import own_record


def kit(*arguments: str, timeout: float = 600, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run ``kit`` to its end."""
    return subprocess.run(
        [sys.executable, "-m", "kit", *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        env=os.environ | environment,
    )


def adapter_case_started(event: AnyEvent) -> bool:
    """The base case is measured by then, and the first adapter's is in flight."""
    return isinstance(event, CaseStarted) and event.case == "lora-logprob/tiny-qwen3/adapter-0"


class Job:
    """A ``kit run`` in the background."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.folder = folder
        self._process = subprocess.Popen(
            [sys.executable, "-m", "kit", "run", "--output", str(folder), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = EventReader(folder / "events.jsonl")

    def wait_for(self, wanted: Callable[[AnyEvent], bool], seconds: float = 240) -> AnyEvent:
        """The first event that is `wanted`."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for event in self._reader.new():
                if wanted(event):
                    return event
            if self._process.poll() is not None:
                raise AssertionError(f"kit ended before that:\n{self._process.communicate()[0]}")
            time.sleep(0.05)
        self._process.kill()
        raise AssertionError("that event did not come")

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to kit itself."""
        self._process.send_signal(number)

    def descendants(self) -> list[psutil.Process]:
        """Every process below kit."""
        return psutil.Process(self._process.pid).children(recursive=True)

    def finish(self, seconds: float = 300) -> "Outcome":
        """Wait for the end and read the reports; nothing that kit started may be left."""
        before = self.descendants() if self._process.poll() is None else []
        text, _ = self._process.communicate(timeout=seconds)
        left = [process for process in before if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]
        assert left == []
        return outcome(self.folder, self._process.returncode, text)


@dataclass(frozen=True)
class Outcome:
    """The exit code, what was printed, and the result as read back."""

    folder: Path
    code: int
    text: str
    result: RunResult

    @property
    def statuses(self) -> dict[str, str]:
        """Case id to status."""
        return {case.id: case.status.value for case in self.result.cases}

    @property
    def asked(self) -> dict[str, str]:
        """Case id to status, without the cases that the plan skips."""
        plan = Plan.model_validate_json((self.folder / "plan.json").read_bytes())
        return {case.id: self.statuses[case.id] for case in plan.cases if case.skip is None}

    def reason(self, case_id: str) -> str:
        """Why a case is not green."""
        return next(case.reason for case in self.result.cases if case.id == case_id)


def outcome(folder: Path, code: int, text: str) -> Outcome:
    """Read a results folder. JUnit, result and plan must tell of the same cases, for junitparser and for lxml.

    Its checksums must hold, and its result must follow again from its events, as `kit verify` demands of every run.
    """
    files = read_folder(folder)
    assert list(faults_in_sums(files)) == []
    assert list(own_record(parse_run(files), files, [])) == []
    plan = Plan.model_validate_json((folder / "plan.json").read_bytes())
    result = load_result(folder / "result.json")
    assert json.loads((folder / "result.json").read_text())["exit_code"] == code, text
    assert [case.id for case in result.cases] == [case.id for case in plan.cases]
    tree = etree.parse(str(folder / "junit.xml"))
    nodes = Counter(node.tag for node in tree.iter())
    suites = list(JUnitXml.fromfile(str(folder / "junit.xml")))
    assert nodes["testcase"] == sum(suite.tests for suite in suites) >= len(plan.cases)
    kinds = Counter(type(entry) for suite in suites for case in suite for entry in case.result)
    assert nodes["failure"] == kinds[Failure] == sum(suite.failures for suite in suites)
    assert nodes["error"] == kinds[Error] == sum(suite.errors for suite in suites)
    assert nodes["skipped"] == kinds[Skipped] == sum(suite.skipped for suite in suites)
    return Outcome(folder, code, text, result)
