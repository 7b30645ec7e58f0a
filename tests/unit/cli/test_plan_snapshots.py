"""The whole plan of every profile, as ``kit run --dry-run`` prints it (tests/snapshots/README.md tells how to write them anew)."""

import hashlib
import io
import itertools
import os
import re
from pathlib import Path

import pytest
from rich.console import Console

from kit.cli.dry_run import print_plan
from kit.host.run import Request, prepare
from kit.profile import load_profiles

FOLDER = Path(__file__).parents[2] / "snapshots"
NAMES = sorted(load_profiles())
WHOLE = ("MI355X-4gpu", "B200-4gpu", "cpu")
"""Their snapshots hold every case; those of the others a session's number of cases, and a digest of their lines."""
CASE = re.compile(r"  (lora-logprob|multi-lora|kernels)/")


def told(name: str) -> str:
    prepared = prepare(Request(profile=name))
    text = io.StringIO()
    print_plan(prepared, Console(file=text, width=200))
    plain = text.getvalue().replace(prepared.plan.run_id, "<run id>")
    plain = re.sub(r"--user \d+:\d+", "--user <user>", plain)
    plain = re.sub(r"(kit-[a-z0-9-]+:\d+)-[0-9a-f]{12}", r"\1-<content>", plain)
    return plain if name in WHOLE else shortened(plain)


def shortened(plan: str) -> str:
    """The plan with one line for the cases of each session."""
    lines = []
    for cases, group in itertools.groupby(plan.splitlines(), key=lambda line: bool(CASE.match(line))):
        block = list(group)
        digest = hashlib.sha256("\n".join(block).encode()).hexdigest()[:12]
        lines += [f"  {len(block)} cases, {digest}"] if cases else block
    return "\n".join(lines) + "\n"


def test_a_shortened_plan_still_tells_any_change() -> None:
    plan = "session a\n  . x = 1\n  kernels/a/b\n  kernels/a/c  (skipped: why)\n\nsession b\n  multi-lora/a/b\n"
    changes = {plan.replace("why", "else"), plan.replace("a/c", "a/d"), plan.replace("x = 1", "x = 2"), plan}
    assert len({shortened(text) for text in changes}) == len(changes)
    assert shortened(plan).count("\n") == 6


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.mark.parametrize("name", NAMES)
def test_the_plan_is_as_written(name: str, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine that has fetched no asset."""
    monkeypatch.setenv("KIT_CACHE", str(cache))
    path = FOLDER / f"plan-{name}.txt"
    if os.environ.get("WRITE_SNAPSHOTS"):
        path.write_text(told(name), encoding="utf-8")
    assert path.exists(), "see tests/snapshots/README.md"
    assert told(name) == path.read_text(encoding="utf-8"), "see tests/snapshots/README.md"


def test_every_snapshot_is_of_a_profile() -> None:
    assert sorted(path.name for path in FOLDER.glob("*.txt")) == sorted(f"plan-{name}.txt" for name in NAMES)
