"""The report in a real browser: quick, quiet, readable on a phone, in the dark, on paper and by keyboard."""

import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from kit.results.model import RunResult
from kit.results.report.render import to_html
from tests.browser.chromium import PROGRAM, Page
from tests.unit.results.report.samples import green, incomplete, many, red

pytestmark = pytest.mark.browser

if PROGRAM is None:
    warnings.warn("NO CHROMIUM: the report is NOT tested in a browser on this machine", stacklevel=1)
    pytest.skip("chromium is not installed (Debian: apt-get install chromium)", allow_module_level=True)

SAMPLES = {"green": green, "red": red, "incomplete": incomplete}
CONTRAST = Path(__file__).with_name("contrast.js").read_text()


def write(folder: Path, result: RunResult) -> Path:
    path = folder / "report.html"
    path.write_bytes(to_html(result))
    return path


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("large"), many(10_000))


@pytest.fixture
def page() -> Iterator[Page]:
    with Page() as browser:
        yield browser


def test_ten_thousand_cases_open_in_three_seconds(large: Path, page: Page) -> None:
    page.open(large)  # the browser's own start is not the report's
    seconds = min(page.open(large) for _ in range(3))
    print(f"{seconds:.2f} s, {large.stat().st_size / 1e6:.1f} MB")
    assert seconds < 3
    assert page.run("document.querySelectorAll('details.case').length") == 10_000


@pytest.mark.parametrize("name", SAMPLES)
def test_nothing_but_the_file_is_asked_for(tmp_path: Path, page: Page, name: str) -> None:
    path = write(tmp_path, SAMPLES[name]())
    page.open(path)
    page.run("document.querySelectorAll('details').forEach(node => { node.open = true; })")
    assert [url for url in page.requests() if not url.startswith("data:")] == [path.as_uri()]
    assert page.complaints() == []


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("width", [360, 800, 1400])
def test_nothing_is_wider_than_the_screen(tmp_path: Path, name: str, width: int) -> None:
    with Page(width, 800) as page:
        page.open(write(tmp_path, SAMPLES[name]()))
        page.run("document.querySelectorAll('details').forEach(node => { node.open = true; })")
        assert page.run("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("dark", [False, True])
def test_text_has_contrast(tmp_path: Path, name: str, dark: bool) -> None:
    with Page(dark=dark) as page:
        page.open(write(tmp_path, SAMPLES[name]()))
        page.run("document.querySelectorAll('details').forEach(node => { node.open = true; })")
        assert (page.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)") == (not dark)
        assert page.run(CONTRAST) == []
        page.run("document.querySelector('.why').style.color = 'rgb(130, 130, 130)'")
        assert len(page.run(CONTRAST)) == 1, "the measure itself sees nothing"


def test_the_verdict_and_the_first_failure_are_on_the_first_screen_of_a_phone(tmp_path: Path) -> None:
    with Page(360, 800) as page:
        page.open(write(tmp_path, red()))
        bottoms = page.run(
            "[...document.querySelectorAll('h1, .why, .verdict li a')].map(n => n.getBoundingClientRect().bottom)"
        )
        assert len(bottoms) == 3 and max(bottoms) < 800


def test_a_link_to_a_case_opens_it(large: Path, page: Page) -> None:
    page.open(large, "#c9999")
    assert page.run("document.getElementById('c9999').open && document.getElementById('c9999').closest('.group').open")
    top = page.run("document.getElementById('c9999').getBoundingClientRect().top")
    assert -5 <= top < 900


def test_the_filter_finds_a_case_among_many(large: Path, page: Page) -> None:
    page.open(large)
    page.run(
        "(() => { const box = document.getElementById('find'); box.value = 'case-7777';"
        " box.dispatchEvent(new Event('input')); })()"
    )
    page.run("new Promise(done => setTimeout(done, 600))")
    shown = "[...document.querySelectorAll('.case')].filter(n => n.checkVisibility()).map(n => n.id)"
    assert page.run(shown) == ["c7777"]
    assert page.run("document.querySelector('output').textContent") == "1 of 10000 entries"


def test_the_keyboard_reaches_the_cases(tmp_path: Path, page: Page) -> None:
    page.open(write(tmp_path, red()))
    page.key("Tab")
    assert page.run("document.activeElement.className") == "skip"
    reached = set()
    for _ in range(40):
        page.key("Tab")
        reached.add(page.run("document.activeElement.tagName"))
    assert {"A", "SUMMARY", "INPUT"} <= reached


def test_without_script_everything_can_be_read(tmp_path: Path, page: Page) -> None:
    page.send("Emulation.setScriptExecutionDisabled", value=True)
    page.load(write(tmp_path, red()))
    tree = page.send("DOM.getDocument", depth=0)["root"]["nodeId"]
    found = page.send("DOM.querySelector", nodeId=tree, selector="#filter[hidden]")
    assert found["nodeId"] != 0


def test_it_prints(tmp_path: Path, page: Page) -> None:
    page.open(write(tmp_path, red()))
    assert page.pdf().startswith(b"%PDF")
