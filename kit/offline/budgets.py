"""What compiled kernels may spill, as recorded in ``budgets.toml``. Read on the host, when a run is planned."""

from functools import cache
from pathlib import Path

from pydantic import Field, model_validator

from kit.measurement import Record
from kit.offline_spec import ResourceBudget
from kit.toml import load_toml

_FILE = Path(__file__).with_name("budgets.toml")


class RecordedBudget(Record):
    """One case whose kernels spill, and how much was seen.

    Attributes:
        case: its id.
        vector_spills, scalar_spills, scratch_bytes: the most of any of its kernels.
        recorded_with: versions of the compiler.
        reason: what is known about it, one clause.
    """

    case: str = Field(pattern=r"^kernels/offline-[a-z-]+-compile/.+$")
    vector_spills: int = Field(default=0, ge=0)
    scalar_spills: int = Field(default=0, ge=0)
    scratch_bytes: int = Field(default=0, ge=0)
    recorded_with: str = Field(min_length=5)
    reason: str = Field(min_length=10)


class Budgets(Record):
    """All of them; a case has one at most."""

    budget: tuple[RecordedBudget, ...] = ()

    @model_validator(mode="after")
    def _unique(self) -> "Budgets":
        cases = [budget.case for budget in self.budget]
        if twice := sorted({case for case in cases if cases.count(case) > 1}):
            raise ValueError(f"two budgets for {twice[0]}")
        return self


@cache
def load_budgets(path: Path = _FILE) -> Budgets:
    """The recorded budgets.

    Raises:
        UsageFault: a damaged file.
    """
    return load_toml(path, Budgets)


def budget_of(case: str) -> ResourceBudget:
    """What the kernels of a case may spill: what is recorded for it, else nothing."""
    found = next((budget for budget in load_budgets().budget if budget.case == case), None)
    if found is None:
        return ResourceBudget()
    return ResourceBudget(
        vector_spills=found.vector_spills,
        scalar_spills=found.scalar_spills,
        scratch_bytes=found.scratch_bytes,
        reason=f"recorded with {found.recorded_with}: {found.reason}",
    )
