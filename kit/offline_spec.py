"""What a check without hardware asks: plain data, made on the host, read by the worker."""

from typing import Annotated, Literal

from pydantic import Field

from kit.attention_spec import AttentionSpec
from kit.measurement import Record


class ResourceBudget(Record):
    """What a compiled kernel may spill (`kit.offline.budgets`); 0 where nothing is recorded.

    Attributes:
        vector_spills, scalar_spills: registers. scratch_bytes: private memory of a thread.
        reason: why, and with which versions it was recorded.
    """

    vector_spills: int = Field(default=0, ge=0)
    scalar_spills: int = Field(default=0, ge=0)
    scratch_bytes: int = Field(default=0, ge=0)
    reason: str = "nothing may spill"


class CompileKernel(Record):
    """The kernels of one attention call compile for an architecture that this machine lacks, within its limits.

    Attributes:
        architecture: such as ``gfx950`` (`kit.offline.architectures`).
        attention: the call; its sizes decide the code.
        budget: what the kernels may spill.
    """

    check: Literal["compile-kernel"] = "compile-kernel"
    library: Literal["wave", "triton"]
    architecture: str
    attention: Annotated[AttentionSpec, Field(discriminator="check")]
    budget: ResourceBudget = ResourceBudget()


class ExecuteMlir(Record):
    """The MLIR that Wave emits for an attention call, executed on the CPU (`kit.offline.mlir`) against float64.

    Attributes:
        architecture: that Wave emits it for. attention: the call.
    """

    check: Literal["execute-mlir"] = "execute-mlir"
    architecture: str
    attention: Annotated[AttentionSpec, Field(discriminator="check")]
