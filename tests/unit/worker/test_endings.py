"""Every way in which a session, a worker or a user can end a run, with real processes and the null subject."""

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from kit.check_spec import NullCheck
from kit.errors import ExitCode
from kit.events import AnyEvent, CaseStarted, Trouble, WorkerStarted
from kit.host.local_runtime import LocalRuntime
from kit.host.supervisor import StopRequest
from kit.plan import NullSession, Plan
from tests.rehearsal import Rehearsal, null_plan, rehearse, write_plan

PASS, FAIL = NullCheck(act="pass"), NullCheck(act="fail")


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Rehearsal]:
    def go(plan: Plan, **options: object) -> Rehearsal:
        folder = write_plan(plan, tmp_path / "run")
        assets = tmp_path / "assets"
        assets.mkdir()
        rehearsal = rehearse(plan, LocalRuntime(folder, assets), folder, **options)
        assert psutil.Process().children(recursive=True) == []
        return rehearsal

    return go


def test_measured_cases_get_their_verdicts(run: Callable[..., Rehearsal]) -> None:
    done = run(null_plan([PASS, FAIL, NullCheck(act="nan")], [PASS]))
    assert done.statuses == {"0/0-pass": "passed", "0/1-fail": "failed", "0/2-nan": "failed", "1/0-pass": "passed"}
    assert done.result.exit_code == ExitCode.NOT_CONFORMING


def test_a_case_that_raises_is_an_error_and_the_session_lives_on(run: Callable[..., Rehearsal]) -> None:
    done = run(null_plan([NullCheck(act="raise"), PASS]))
    assert done.statuses == {"0/0-raise": "crashed", "0/1-pass": "passed"}
    assert "RuntimeError: asked to raise" in done.cases["kernels/null-0/0-raise"].reason
    assert done.result.exit_code == ExitCode.INCOMPLETE


@pytest.mark.parametrize(("act", "named"), [("kill", "SIGKILL"), ("exit", "exit code 0")])
def test_a_session_that_dies_loses_no_verdict(run: Callable[..., Rehearsal], act: str, named: str) -> None:
    done = run(null_plan([PASS, FAIL, NullCheck(act=act), PASS, PASS], [PASS]))  # type: ignore[arg-type]
    assert done.statuses == {
        "0/0-pass": "passed",
        "0/1-fail": "failed",
        f"0/2-{act}": "crashed",
        "0/3-pass": "missing",
        "0/4-pass": "missing",
        "1/0-pass": "passed",
    }
    assert named in done.cases[f"kernels/null-0/2-{act}"].reason
    assert named in done.cases["kernels/null-0/4-pass"].reason
    assert done.result.exit_code == ExitCode.INCOMPLETE


def test_a_case_over_its_limit_is_ended_and_named(run: Callable[..., Rehearsal]) -> None:
    begin = time.monotonic()
    done = run(null_plan([PASS, NullCheck(act="hang"), PASS], [PASS], case=1.5))
    assert done.statuses == {"0/0-pass": "passed", "0/1-hang": "timeout", "0/2-pass": "missing", "1/0-pass": "passed"}
    assert "1.5 s" in done.cases["kernels/null-0/1-hang"].reason
    assert time.monotonic() - begin < 15


def test_a_session_that_never_gets_ready_is_a_timeout(run: Callable[..., Rehearsal]) -> None:
    done = run(null_plan([PASS], spec=NullSession(start_seconds=600), start=1))
    assert done.statuses == {"0/0-pass": "timeout"}
    assert "while it started" in done.cases["kernels/null-0/0-pass"].reason


def test_the_whole_run_has_a_limit(run: Callable[..., Rehearsal]) -> None:
    done = run(null_plan([PASS, NullCheck(act="hang"), PASS], case=600, run=4))
    assert done.statuses == {"0/0-pass": "passed", "0/1-hang": "timeout", "0/2-pass": "missing"}
    assert "time limit of 4 s" in done.cases["kernels/null-0/1-hang"].reason


def test_orphans_are_found_and_ended(run: Callable[..., Rehearsal]) -> None:
    done = run(null_plan([NullCheck(act="orphan"), PASS]))
    assert set(done.statuses.values()) == {"passed"}
    assert done.result.exit_code == ExitCode.CONFORMS


def test_noise_of_any_bytes_changes_nothing(run: Callable[..., Rehearsal]) -> None:
    done = run(null_plan([NullCheck(act="noise"), PASS]))
    assert set(done.statuses.values()) == {"passed"}
    assert done.seen.damaged == 0


def test_dying_after_the_last_case_is_a_crash(run: Callable[..., Rehearsal]) -> None:
    """sglang PR 39356: the test prints OK, and the process dies of a corrupted heap."""
    done = run(null_plan([PASS, PASS], spec=NullSession(abort_at_end=True)))
    assert done.statuses == {"0/0-pass": "passed", "0/1-pass": "crashed"}
    assert "SIGABRT" in done.cases["kernels/null-0/1-pass"].reason
    assert done.result.exit_code == ExitCode.INCOMPLETE


def test_another_architecture_is_refused(run: Callable[..., Rehearsal]) -> None:
    done = run(null_plan([PASS], architecture="gfx950"))
    assert done.statuses == {"0/0-pass": "environment"}
    assert "gfx950" in done.cases["kernels/null-0/0-pass"].reason
    assert done.result.exit_code == ExitCode.ENVIRONMENT


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_a_killed_worker_loses_no_verdict(run: Callable[..., Rehearsal], number: signal.Signals) -> None:
    worker: list[int] = []

    def kill(event: AnyEvent) -> None:
        if isinstance(event, WorkerStarted):
            worker.append(event.pid)
        if isinstance(event, CaseStarted) and event.case.endswith("hang"):
            os.kill(worker[0], number)

    done = run(null_plan([PASS, NullCheck(act="hang"), PASS], [PASS], case=60), on_event=kill)
    assert done.statuses == {"0/0-pass": "passed", "0/1-hang": "crashed", "0/2-pass": "missing", "1/0-pass": "missing"}
    assert number.name in done.cases["kernels/null-0/1-hang"].reason
    assert number.name in done.cases["kernels/null-1/0-pass"].reason
    assert done.result.exit_code == ExitCode.INCOMPLETE


def test_a_request_to_stop_ends_all_and_reports_all(run: Callable[..., Rehearsal]) -> None:
    stop = StopRequest()

    def ask(event: AnyEvent) -> None:
        if isinstance(event, CaseStarted) and event.case.endswith("hang"):
            threading.Timer(0.1, lambda: setattr(stop, "signal", signal.SIGINT)).start()

    done = run(null_plan([PASS, NullCheck(act="hang"), PASS], case=60), stop=stop, on_event=ask)
    assert done.statuses["0/0-pass"] == "passed"
    assert done.statuses["0/1-hang"] != "passed"
    assert done.result.exit_code == ExitCode.INTERRUPTED


def test_a_damaged_asset_is_the_machines_fault(tmp_path: Path) -> None:
    from kit.plan import AssetFile

    plan = null_plan([PASS]).model_copy(update={"assets": (AssetFile(path="model/weights", sha256="0" * 64),)})
    folder = write_plan(plan, tmp_path / "run")
    assets = tmp_path / "assets" / "model"
    assets.mkdir(parents=True)
    (assets / "weights").write_bytes(b"changed")
    done = rehearse(plan, LocalRuntime(folder, tmp_path / "assets"), folder)
    assert done.statuses == {"0/0-pass": "environment"}
    assert "model/weights is damaged" in done.cases["kernels/null-0/0-pass"].reason


def test_a_results_folder_that_is_full_is_the_machines_fault(tmp_path: Path) -> None:
    """/dev/full answers every write with ENOSPC."""
    plan = null_plan([PASS])
    folder = write_plan(plan, tmp_path / "run")
    (folder / "events.jsonl").symlink_to("/dev/full")
    (tmp_path / "assets").mkdir()
    runtime = LocalRuntime(folder, tmp_path / "assets")
    runtime.start()
    while (ending := runtime.ended()) is None:
        time.sleep(0.05)
    assert ending.trouble is Trouble.ENVIRONMENT
    assert "could not be written" in ending.reason
