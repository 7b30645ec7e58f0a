"""`--rerun-failed`: only what was not green, of the same profile, never in qualify."""

from pathlib import Path

import pytest

from kit.errors import UsageFault
from kit.host.run import Request, prepare
from kit.measurement import Measurement
from kit.plan import Case
from kit.results.bundle import make_bundle
from tests.unit.results.runs import Staged, measured

RED = ("lora-logprob/tiny-qwen3/base", "multi-lora/tiny-qwen3/")


def some_red(case: Case) -> tuple[Measurement, ...]:
    return measured(case, scale=50.0 if case.id.startswith(RED) else 1.0)


@pytest.fixture(scope="module")
def red(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("red") / "run"
    Staged(measure=some_red).write(folder)
    return folder


def test_only_what_was_red_is_planned(red: Path) -> None:
    for run in (red, make_bundle(red, red.with_name("red.tar.zst"))):
        plan = prepare(Request(profile="cpu", rerun_failed=run)).plan
        assert plan.cases and all(case.id.startswith(RED) for case in plan.cases)
        assert {session.id for session in plan.sessions} == {"sglang-tiny-qwen3", "sglang-tiny-qwen3-few-slots"}
        assert plan.rerun_of == "20261201-120000-abcdef"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"mode": "qualify"}, "mode qualify takes no rerun"),
        ({"profile": "h200"}, "is a run of profile cpu, not of H200-1gpu"),
        ({"cases": ("kernels/*",)}, "chooses the cases itself"),
        ({"rerun_failed": Path("absent")}, "absent does not exist"),
    ],
)
def test_refused(red: Path, changes: dict[str, object], says: str) -> None:
    request = Request(**({"profile": "cpu", "rerun_failed": red} | changes))  # type: ignore[arg-type]
    with pytest.raises(UsageFault, match=says):
        prepare(request)


def test_a_green_run_has_nothing_to_rerun(tmp_path: Path) -> None:
    Staged().write(tmp_path / "run")
    with pytest.raises(UsageFault, match=r"no case of .* was red"):
        prepare(Request(profile="cpu", rerun_failed=tmp_path / "run"))


def test_something_else_than_a_run(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no bundle")
    with pytest.raises(UsageFault, match="no results folder or bundle of kit"):
        prepare(Request(profile="cpu", rerun_failed=tmp_path / "file"))
    (tmp_path / "folder").mkdir()
    with pytest.raises(UsageFault, match="no results folder or bundle of kit"):
        prepare(Request(profile="cpu", rerun_failed=tmp_path / "folder"))
