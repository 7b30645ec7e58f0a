"""What a process of the pool is given."""

from collections.abc import Hashable
from dataclasses import dataclass
from operator import attrgetter

from kit.offline_spec import CompileKernel, ExecuteMlir
from kit.plan import InjectedFault

OfflineSpec = CompileKernel | ExecuteMlir


@dataclass(frozen=True)
class Asked:
    """A case's question, and the deliberate faults under which it is asked."""

    spec: OfflineSpec
    faults: tuple[InjectedFault, ...] = ()

    @property
    def kernel(self) -> Hashable:
        """What decides the code of a kernel beside the lengths: cases that agree in it can share a process."""
        library = self.spec.library if isinstance(self.spec, CompileKernel) else "wave"
        sizes = attrgetter("check", "query_heads", "kv_heads", "head_dim", "value_dim", "dtype", "logit_cap")
        return (library, self.spec.architecture, *sizes(self.spec.attention), len(self.spec.attention.lengths))
