"""A self-test as a run: the same image, assets, worker and verdicts, with the cases of `kit.selftest.choice`."""

from collections.abc import Iterator
from dataclasses import replace

from kit.faults.catalogue import FAULTS
from kit.host.run import Prepared, with_inputs
from kit.plan import Plan
from kit.selftest.choice import Choice, selftest_plan


def selftest_of(prepared: Prepared, choice: Choice) -> Prepared:
    """The run of a profile, with the plan of a self-test in place of its own.

    Raises:
        UsageFault: see `selftest_plan`.
    """
    plan = selftest_plan(prepared.profile, prepared.waivers, choice, prepared.plan.run_id)
    return replace(prepared, plan=with_inputs(plan, prepared.profile, prepared.waivers, prepared.mode))


def told(plan: Plan) -> Iterator[str]:
    """What is asked, a case a line; what is done to the record after the run; and the faults that no case of the profile is about."""
    for case in plan.cases:
        yield f"{case.session}  {case.id}"
    asked = {fault.name for fault in plan.injected}
    for name, kind in FAULTS.items():
        if kind.acts_on == "reports":
            yield f"kit verify  {name}"
        elif name not in asked:
            yield f"not asked: {name} ({kind.where})"
