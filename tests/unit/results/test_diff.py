"""`kit diff`: what broke, what was mended, which margins were lost, and what else is different."""

import json
import math
from pathlib import Path

import pytest
from lxml import html as lxml_html

from kit.cli import main
from kit.measurement import Comparison, LimitSource, Measurement
from kit.results.bundle import make_bundle
from kit.results.diff import compare
from kit.results.diff_text import summary, to_html, to_text
from kit.results.model import RunResult, Status, load_result
from tests.unit.results.runs import Staged, measured
from tests.unit.results.streams import KERNEL, LORA, MIXED, error_of
from tests.unit.results.test_junit import a_case, a_result


def result(*cases: object, **fields: object) -> RunResult:
    return a_result(*cases, **fields)  # type: ignore[arg-type]


def margins(before: Measurement, after: Measurement) -> list[tuple[float, float]]:
    """Margins that were lost between two runs of one case."""
    told = compare(result(a_case(measurements=(before,))), result(a_case(measurements=(after,))))
    return [(lost.margin_before, lost.margin_after) for lost in told.lost_margins]


GOOD = [Status.PASSED, Status.WAIVED, Status.UNEXPECTED_PASS]
BAD = [Status.FAILED, Status.CRASHED, Status.TIMEOUT, Status.MISSING, Status.ENVIRONMENT]


@pytest.mark.parametrize("good", GOOD)
@pytest.mark.parametrize("bad", BAD)
def test_new_failures_and_fixed(good: Status, bad: Status) -> None:
    told = compare(result(a_case(good), a_case(name=LORA)), result(a_case(bad, reason="why"), a_case(name=LORA)))
    assert [(c.case, c.before, c.after, c.reason) for c in told.new_failures] == [(KERNEL, good, bad, "why")]
    assert told.worse and not told.fixed and not told.changed
    back = compare(result(a_case(bad)), result(a_case(good)))
    assert [c.case for c in back.fixed] == [KERNEL] and not back.worse


def test_a_case_that_is_skipped_now_is_worse() -> None:
    told = compare(result(a_case(), a_case(name=LORA)), result(a_case(Status.SKIPPED, reason="no"), a_case(name=LORA)))
    assert [c.case for c in told.changed] == [KERNEL] and told.worse and not told.new_failures
    assert not compare(result(a_case()), result(a_case(Status.WAIVED))).worse


def test_added_and_removed_cases() -> None:
    told = compare(result(a_case(), a_case(name=LORA)), result(a_case(), a_case(name=MIXED)))
    assert (told.added, told.removed, told.worse) == ((MIXED,), (LORA,), True)


@pytest.mark.parametrize(
    ("before", "after", "lost"),
    [
        (error_of(0.1), error_of(0.149), False),  # within noise
        (error_of(0.1), error_of(0.151), True),
        (error_of(0.1), error_of(0.05), False),  # better
        (error_of(2.0), error_of(4.0), True),  # further outside
        (error_of(0.0001), error_of(0.005), False),  # both ample
        (error_of(0.0), error_of(0.005), False),
        (error_of(0.0), error_of(0.5), True),
        (error_of(0.5), error_of(math.nan), True),
        (error_of(math.nan), error_of(math.nan), False),
        (error_of(0.2, limit=1.0), error_of(0.2, limit=0.4), False),  # the peer's error moved by as much
        (error_of(0.2, limit=1.0), error_of(0.5, limit=0.4), True),
        (error_of(0.5), Measurement(name="max_abs_error", value=0.9), False),  # not judged any more
    ],
)
def test_lost_margins(before: Measurement, after: Measurement, lost: bool) -> None:
    assert bool(margins(before, after)) is lost


def test_lower_bounds_have_margins_too() -> None:
    def effect(value: float) -> Measurement:
        return Measurement(
            name="effect", value=value, comparison=Comparison.AT_LEAST, limit=0.1, source=LimitSource.EFFECT
        )

    assert margins(effect(0.9), effect(0.3)) == [(pytest.approx(9), pytest.approx(3))]
    assert margins(effect(0.3), effect(0.9)) == []


def test_one_name_measured_twice_is_compared_in_order() -> None:
    before, after = (error_of(0.1), error_of(0.9)), (error_of(0.1), error_of(0.9))
    told = compare(result(a_case(measurements=before)), result(a_case(measurements=after)))
    assert told.lost_margins == ()


def test_the_environment() -> None:
    before = result(
        a_case(), host={"hostname": "a", "driver.nvidia": "570"}, worker={"torch": "2.11.0"}, image={"id": "1"}
    )
    after = result(a_case(), host={"hostname": "a", "driver.nvidia": "580"}, worker={"torch": "2.13.0"})
    told = compare(before, after)
    assert told.environment == {
        "gpu.driver.nvidia": ("570", "580"),
        "image.id": ("1", None),
        "packages.torch": ("2.11.0", "2.13.0"),
    }
    assert not told.worse


def test_nothing_different() -> None:
    told = compare(result(a_case()), result(a_case()))
    assert summary(told) == "NOT WORSE: no difference" and summary(told) in to_text(told)


def test_html_holds_any_text_and_no_script() -> None:
    before = result(a_case(measurements=(error_of(0.1),)), host={"hostname": "a"})
    after = result(
        a_case(Status.FAILED, reason="<script>alert(1)</script> & more", measurements=(error_of(3.0),)),
        host={"hostname": "<b>b</b>"},
    )
    page = to_html(compare(before, after))
    tree = lxml_html.fromstring(page)
    assert not tree.findall(".//script") and not tree.findall(".//b")
    assert "<script>alert(1)</script> & more" in tree.text_content()
    assert "new failures (1)" in tree.text_content() and "lost margins (1)" in tree.text_content()


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    Staged().write(tmp_path / "a")
    Staged(run_id="later", measure=lambda case: measured(case, 2.0)).write(tmp_path / "b")
    bundle = make_bundle(tmp_path / "b")
    arguments = ["--json", str(tmp_path / "d.json"), "--html", str(tmp_path / "d.html")]
    monkeypatch.setattr("sys.argv", ["kit", "diff", str(tmp_path / "a"), str(bundle), *arguments])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 1
    cases = sum(case.status != "skipped" for case in load_result(tmp_path / "b" / "result.json").cases)
    assert f"WORSE: {cases} lost margins" in capsys.readouterr().out
    told = json.loads((tmp_path / "d.json").read_text())
    assert (told["after"]["run_id"], len(told["lost_margins"])) == ("later", cases)
    assert f"<h2>lost margins ({cases})</h2>" in (tmp_path / "d.html").read_text()
    monkeypatch.setattr("sys.argv", ["kit", "diff", str(tmp_path / "a"), str(tmp_path / "a"), "--json", "-"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 0 and json.loads(capsys.readouterr().out)["new_failures"] == []
