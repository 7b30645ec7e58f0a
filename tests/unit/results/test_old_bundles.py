"""Bundles of earlier kits stay readable, and their verdicts still follow from their events."""

from pathlib import Path

import pytest

from kit.errors import UsageFault
from kit.host.run import Request, prepare
from kit.results.bundle import read_run
from kit.results.diff import difference_of
from kit.results.model import Status
from kit.results.report.render import to_html
from kit.results.stored import parse_run
from kit.results.sums import faults_in_sums
from kit.results.verify import own_record, verify

OLD = sorted((Path(__file__).parents[2] / "fixtures").glob("*.tar.zst"))


@pytest.mark.parametrize("bundle", OLD, ids=lambda path: path.name)
def test_it_is_read_and_its_record_is_true(bundle: Path) -> None:
    files = read_run(bundle)
    assert list(faults_in_sums(files)) == []
    notes: list[str] = []
    assert list(own_record(parse_run(files), files, notes)) == []


def test_version_1() -> None:
    (bundle,) = [path for path in OLD if path.name == "bundle-1-cpu-lora.tar.zst"]
    result = parse_run(read_run(bundle)).result
    assert [case.status for case in result.cases].count(Status.WAIVED) == 1
    assert result.worker["sglang"] == "0.5.19"
    assert b"lora-logprob" in to_html(result)
    assert not difference_of(bundle, bundle).worse
    told = verify(bundle, "cpu")
    assert any("the mandatory case kernels/" in text for text in told.refusals), "it is one battery of the profile"
    with pytest.raises(UsageFault, match=r"no case of .* was red"):
        prepare(Request(profile="cpu", rerun_failed=bundle))
