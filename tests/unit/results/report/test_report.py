"""The report: every case in it, numbers as they are, any text harmless, nothing loaded, and fast at 10,000 cases."""

import math
import re
import time
from datetime import date

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lxml import html

from kit.errors import ExitCode
from kit.results.model import Mode, Problem, RunResult, SessionResult, Status
from kit.results.report.render import to_html
from kit.results.report.sentence import TITLES, verdict_sentence
from kit.waiver import Waiver
from tests.unit.results.report.samples import (
    BY_CODE,
    FAULT,
    QUALIFY_PROBLEM,
    WAIVER,
    by_head,
    by_position,
    case,
    green,
    incomplete,
    many,
    measured,
    red,
    result,
)


def page(of: RunResult, before: RunResult | None = None) -> html.HtmlElement:
    return html.document_fromstring(to_html(of, before).decode())


def text(node: html.HtmlElement) -> str:
    return " ".join(" ".join(node.itertext()).split())


@pytest.mark.parametrize("code", list(BY_CODE))
def test_the_verdict_comes_first_and_says_why(code: ExitCode) -> None:
    sample = BY_CODE[code]
    assert sample.exit_code is code
    verdict = page(sample).find(".//section[@class]/h1/..")
    assert verdict is not None
    assert text(verdict.find("h1")) == TITLES[code]
    assert text(verdict.find("p[@class='why']")) == verdict_sentence(sample)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (ExitCode.CONFORMS, ("All 3 cases keep all their limits", "lora-logprob/tiny/adapter-0", "×2.33")),
        (ExitCode.NOT_CONFORMING, ("1 of 3 cases failed", "lora-logprob/tiny/adapter-0", "0.217 nat", "4.5e-06")),
        (ExitCode.ENVIRONMENT, ("1 of 1 case was stopped by the machine", "out of memory, 9 GiB")),
        (ExitCode.INCOMPLETE, ("lora-logprob/tiny/base crashed", "SIGSEGV", "1 crashed, 3 missing of 5 cases")),
        (ExitCode.INTERRUPTED, ("stopped from outside", "1 of 2 cases")),
    ],
)
def test_the_sentence_of_each_exit_code(code: ExitCode, words: tuple[str, ...]) -> None:
    sentence = verdict_sentence(BY_CODE[code])
    assert all(word in sentence for word in words), sentence
    assert sentence.endswith(".") and "\n" not in sentence


@pytest.mark.parametrize(
    ("sample", "words"),
    [
        (QUALIFY_PROBLEM, "the mandatory battery lora-logprob is gone"),
        (result(), "No case was planned"),
        (result(case("kernels/a/b", Status.SKIPPED, reason="no GPU")), "Every case was skipped"),
        (result(case("kernels/a/b", Status.UNEXPECTED_PASS, measured("e", 0.1)), mode=Mode.QUALIFY), "1 case passed"),
        (
            result(
                case("kernels/a/b", Status.PASSED, measured("e", 0.1)),
                problems=(Problem(exit_code=ExitCode.ENVIRONMENT, text="the node is dirty"),),
            ),
            "The node is dirty",
        ),
        (
            result(case("k/a/b", Status.CRASHED, reason="SIGKILL"), case("k/a/c", Status.FAILED, measured("e", 3.0))),
            "Beside that, 1 case failed",
        ),
    ],
)
def test_the_sentence_where_no_case_decides(sample: RunResult, words: str) -> None:
    assert words in verdict_sentence(sample)


@pytest.mark.parametrize("sample", [*BY_CODE.values(), many(600)])
def test_every_case_is_there_once_and_every_link_leads_somewhere(sample: RunResult) -> None:
    tree = page(sample)
    ids = tree.xpath("//@id")
    assert len(ids) == len(set(ids))
    assert {link[1:] for link in tree.xpath("//a/@href") if link.startswith("#")} <= set(ids)
    shown = {node.get("id"): node for node in tree.get_element_by_id("cases").getparent().iter() if node.get("id")}
    for index, expected in enumerate(sample.cases):
        assert expected.id in text(shown[f"c{index}"])


@pytest.mark.parametrize("sample", [green(), red()])
def test_the_numbers_are_those_of_the_result(sample: RunResult) -> None:
    tree = page(sample)
    for index, expected in enumerate(sample.cases):
        rows = tree.get_element_by_id(f"c{index}").xpath(".//table[1]/tbody/tr")
        for row, measurement in zip(rows, expected.measurements, strict=False):
            value, limit = (float(number) for number in row.xpath(".//data/@value"))
            assert limit == measurement.limit
            assert value == measurement.value or (math.isnan(value) and math.isnan(measurement.value))
            assert str(measurement.source) in text(row) and measurement.note in text(row)
            assert ("outside" in text(row)) == (not measurement.within)


def test_many_cases_keep_their_numbers_in_one_line_each() -> None:
    sample = many(600)
    tree = page(sample)
    passed = next(i for i in reversed(range(600)) if tree.get_element_by_id(f"c{i}").find("pre") is not None)
    lines = tree.get_element_by_id(f"c{passed}").findtext("pre").splitlines()
    for line, measurement in zip(lines, sample.cases[passed].measurements, strict=True):
        assert line.startswith(f"· {measurement.name} = {measurement.value:.3g} nat, limit ≤ {measurement.limit:.3g}")


def test_faults_waivers_gaps_and_warnings_are_told() -> None:
    tree = page(red())
    assert "adapter-scaling=1.1" in text(tree.find(".//section[@class='injected']"))
    waivers = text(tree.get_element_by_id("waivers").getparent())
    assert "known-fault" in waivers and "61" in waivers and WAIVER.link in waivers
    assert "No GPU took part." in text(tree) and "this run says nothing about the hardware" in text(tree)
    assert tree.find(".//section[@class='injected']") is not None
    assert page(green()).find(".//section[@class='injected']") is None


def test_an_expired_waiver_says_so() -> None:
    old = Waiver.model_validate(
        WAIVER.model_dump() | {"opened": date(2026, 10, 1), "expires": date(2026, 11, 30), "id": "old"}
    )
    tree = page(result(case("kernels/a/b", Status.FAILED, measured("e", 3.0), waiver="old"), waivers=(old,)))
    assert "expired" in text(tree.get_element_by_id("waivers").getparent())


def test_a_reader_finds_what_to_try() -> None:
    tree = page(red())
    failed = text(tree.get_element_by_id("c1"))
    assert "lora-logprob/tiny/base passes on the same engine" in failed
    assert "It is off by 9.88 %" in failed
    assert "kit run --profile cpu --runtime docker --case lora-logprob/tiny/adapter-0" in failed
    dead = page(incomplete())
    assert "SIGSEGV is native code" in text(dead.get_element_by_id("c0"))
    assert "line 59" in text(dead.get_element_by_id("c0"))
    bundle = text(dead.get_element_by_id("c1-all"))
    assert "and 2 more" in bundle and "lora-logprob/tiny/base (crashed) ended session s" in bundle


def test_plots_have_words_for_those_who_do_not_see_them() -> None:
    tree = page(red())
    labels = tree.xpath("//svg[@role='img']/@aria-label")
    assert len(labels) == len(tree.xpath("//svg[@role]"))
    assert any("150 of 270 positions are outside" in label and "prompt 3, position 10" in label for label in labels)
    assert any("4 of 256 outside, at request 1 head 64, request 1 head 65" in label for label in labels)
    assert all(tree.xpath("//table/thead/tr/th/@scope"))


def test_tables_in_evidence_become_tables() -> None:
    tables = page(red()).get_element_by_id("c1").xpath(".//table")
    drift = next(table for table in tables if [text(th) for th in table.findall("thead/tr/th")][:1] == ["round"])
    assert [[text(td) for td in row] for row in drift.findall("tbody/tr")][3] == ["3", "1.5", "round 3"]


def test_an_earlier_run_tells_since_when() -> None:
    before = green().model_copy(update={"run_id": "20261124-120000-000000", "worker": {"torch": "2.12.0"}})
    tree = page(red(), before)
    failed = text(tree.get_element_by_id("c1"))
    assert "Since when: still passed in run 20261124-120000-000000" in failed and "it changed after that" in failed
    since = text(tree.get_element_by_id("h-since").getparent())
    assert "worker: torch 2.12.0 2.13.0" in since and "lora-logprob/tiny/adapter-0 passed" in since
    assert not page(red()).xpath("//*[@id='h-since']")


def test_nothing_is_loaded_and_only_our_own_script_may_run() -> None:
    for sample in BY_CODE.values():
        tree = page(sample)
        assert len(tree.xpath("//script")) == 1 and tree.xpath("//script/@src") == []
        assert set(tree.xpath("//@src")) == set()
        assert [link for link in tree.xpath("//link/@href") if not link.startswith("data:,")] == []
        assert "default-src 'none'" in tree.xpath("//meta[@http-equiv]/@content")[0]
        assert b"url(" not in to_html(sample) and b"@import" not in to_html(sample)


def test_the_same_result_gives_the_same_bytes() -> None:
    again = RunResult.model_validate_json(red().to_json())
    assert to_html(red()) == to_html(again)


HARMFUL = st.sampled_from(
    [
        "<script>alert(1)</script>",
        '"><img src=x onerror=alert(1)>',
        "' onclick='x",
        "</style></pre></details>",
        "{{ 7 * 7 }}{% raw %}",
        "\x1b[31mred\x00\x07",
        "\ud800 \udfff",
        "\u202egnp.exe",
        "javascript:alert(1)",
        "]]><!--",
        "& &amp; &#60;",
        "\r\n\u2028",
    ]
)
ANY = st.one_of(HARMFUL, st.text(st.characters(codec=None), max_size=12), st.tuples(HARMFUL, HARMFUL).map("".join))
JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers(-(2**60), 2**60) | ANY,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY, inner, max_size=3),
    max_leaves=6,
)
MEASURED = st.builds(
    measured,
    ANY,
    st.floats(),
    st.floats(allow_nan=False),
    note=ANY,
    unit=ANY,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_no_text_is_taken_for_markup(data: st.DataObject) -> None:
    cases = [
        case(
            f"kernels/{data.draw(ANY)}/{n}",
            data.draw(st.sampled_from(Status)),
            *data.draw(st.lists(MEASURED, max_size=3)),
            reason=data.draw(ANY),
            session=data.draw(st.sampled_from(["s", "\x00"])),
            evidence=data.draw(st.dictionaries(ANY, JSON, max_size=3)),
            waiver="known-fault",
        )
        for n in range(data.draw(st.integers(0, 4)))
    ]
    session = SessionResult(
        id="s", ended=False, log=data.draw(ANY), log_tail=data.draw(ANY), facts={"a": data.draw(ANY)}
    )
    sample = result(
        *cases,
        run_id=data.draw(ANY),
        host={data.draw(ANY): data.draw(ANY), "hostname": '{"a": "' + "x" * 100 + "<b>"},
        warnings=(data.draw(ANY),),
        does_not_prove=(data.draw(ANY),),
        sessions=(session,),
        faults=(FAULT,),
        waivers=(WAIVER,),
    )
    data_out = to_html(sample, green())
    written = data_out.decode()
    assert not re.search("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\u202a-\u202e\u2066-\u2069]", written)
    tree = html.document_fromstring(written)
    assert len(tree.xpath("//script")) == 1 and tree.xpath("//img") == []
    for node in tree.iter():
        if isinstance(node.tag, str):
            assert not [name for name in node.attrib if name.startswith("on")], node.attrib
            assert not node.get("href", "").lower().startswith("javascript")
    assert len(tree.xpath("//main/section")) >= 7


@pytest.mark.parametrize("evidence", [by_position(1e4), by_position(math.nan), by_head(True)])
def test_plots_of_odd_numbers(evidence: object) -> None:
    sample = result(case("k/a/b", Status.FAILED, measured("e", 3.0), evidence={"plot": evidence.as_evidence()}))  # type: ignore[attr-defined]
    written = to_html(sample).decode()
    assert "nan%" not in written and "inf%" not in written


def test_ten_thousand_cases_stay_small_and_quick() -> None:
    sample = many(10_000)
    start = time.process_time()
    written = to_html(sample)
    assert time.process_time() - start < 8
    assert len(written) < 15e6
    tree = html.document_fromstring(written)
    assert len(tree.xpath("//details[contains(@class, 'case')]")) == 10_000
    assert len(tree.xpath("//ol[@class='rows']/li")) == 26
