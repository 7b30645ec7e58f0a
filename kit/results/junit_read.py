"""Reads back what a JUnit file says, to hold it against a result."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from xml.etree import ElementTree

from kit.results.junit import to_junit
from kit.results.model import RunResult

_OUTCOMES = ("failure", "error", "skipped")


@dataclass(frozen=True)
class JUnitOutcomes:
    """What became of every test case, by suite, classname and name; None where the file is not JUnit."""

    outcomes: Counter[tuple[str, ...]] | None

    def differences(self, derived: RunResult) -> Iterator[str]:
        """In what the file differs from the result that the events give."""
        if self.outcomes is None:
            yield "junit.xml is not readable as JUnit"
            return
        expected = read_junit(to_junit(derived)).outcomes or Counter()
        for outcome in (expected - self.outcomes) | (self.outcomes - expected):
            suite, classname, name, what = outcome
            where = "is missing in" if expected[outcome] > self.outcomes[outcome] else "stands in"
            yield f"junit.xml: {classname}.{name} ({suite}) as {what} {where} the file, against the events"


def read_junit(data: bytes) -> JUnitOutcomes:
    """The outcomes of a JUnit file. A document type is refused, so that no entity is ever expanded."""
    if b"<!DOCTYPE" in data or b"<!ENTITY" in data:
        return JUnitOutcomes(None)
    try:
        root = ElementTree.fromstring(data)
    except ElementTree.ParseError:
        return JUnitOutcomes(None)
    return JUnitOutcomes(
        Counter(
            (suite.get("name", ""), test.get("classname", ""), test.get("name", ""), _what(test))
            for suite in root.iter("testsuite")
            for test in suite.findall("testcase")
        )
    )


def _what(test: ElementTree.Element) -> str:
    return next((f"{child.tag} {child.get('type', '')}" for child in test if child.tag in _OUTCOMES), "passed")
