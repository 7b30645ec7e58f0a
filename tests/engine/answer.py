"""Answers check specs on one real subject, in a process of its own: ``answer.py JOB RESULT`` (see `Job`)."""

import sys
from pathlib import Path

from kit.check_spec import CheckSpec
from kit.checks import run_check
from kit.measurement import Measurement, Record
from kit.plan import InjectedFault, SessionSpec
from kit.subjects import Workspace, open_subject


class Job(Record):
    """A session, what it is asked, and where its folders are."""

    session: SessionSpec
    checks: tuple[CheckSpec, ...]
    assets: Path
    scratch: Path
    faults: tuple[InjectedFault, ...] = ()


class Answers(Record):
    """Measurements per check, the facts of the session, and its living processes after it was closed."""

    measurements: tuple[tuple[Measurement, ...], ...]
    facts: dict[str, str]
    left_behind: tuple[str, ...]


def main(job: Job) -> Answers:
    import psutil

    with open_subject(job.session, Workspace(job.assets, job.scratch, job.faults)) as subject:
        measured = tuple(run_check(check, subject).measurements for check in job.checks)
        facts = subject.facts
    children = psutil.Process().children(recursive=True)
    left = tuple(str(child) for child in children if child.status() != psutil.STATUS_ZOMBIE)
    return Answers(measurements=measured, facts=facts, left_behind=left)


if __name__ == "__main__":
    answers = main(Job.model_validate_json(Path(sys.argv[1]).read_bytes()))
    Path(sys.argv[2]).write_text(answers.model_dump_json())
