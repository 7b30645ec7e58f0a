"""The faults of a run's record: what somebody, or a bug, changes in it after the fact. Data only; `kit.selftest.reports` acts."""

from typing import Final

from kit.faults.kind import FaultKind


def _fault(name: str, effect: str, report: str | None = None) -> FaultKind:
    return FaultKind(name, effect, "report", "reports", report)


REPORT_FAULTS: Final[tuple[FaultKind, ...]] = (
    _fault("report-byte-flipped", "one byte of a log is another one"),
    _fault("report-event-altered", "the last measurement in the events is halved, and checksums are made anew"),
    _fault("report-event-lost", "the last event is lost, and checksums are made anew"),
    _fault(
        "report-case-removed",
        "a case is removed from result.json, and checksums are made anew",
        "JuliaTesting/TestReports.jl#43",
    ),
    _fault("report-limit-altered", "a limit in result.json is ten times as wide, and checksums are made anew"),
    _fault(
        "report-status-altered",
        "a red case in result.json says passed, and checksums are made anew",
        "vipm-io/caraya#157",
    ),
    _fault(
        "report-junit-altered",
        "a red case in junit.xml is an empty one, and checksums are made anew",
        "weiwei/junitparser#180",
    ),
    _fault("report-plan-altered", "the faults are removed from plan.json, and checksums are made anew"),
    _fault("report-html-altered", "a red case in report.html says passed, and checksums are made anew"),
)
