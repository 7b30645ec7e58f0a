"""What will be run: sessions, and the cases that each of them answers. Data only; made on the host, read by the worker."""

from typing import Annotated, Final, Literal

from pydantic import Field, JsonValue

from kit.asset import PinnedFile
from kit.check_spec import CheckSpec
from kit.measurement import Record

PLAN_SCHEMA: Final = 1

KernelLibrary = Literal["triton", "wave", "flashinfer", "fa3", "fa4", "torch", "lora-triton", "lora-csgmv"]
StandIn = Literal["sgl_kernel", "torchvision", "pinned_memory"]


class ProcessSpec(Record):
    """What every session's process is given.

    Attributes:
        environment: variables set before the subject's library is imported.
        stand_ins: modules of `kit.standins` that replace what this profile's stack lacks.
    """

    environment: dict[str, str] = Field(default_factory=dict)
    stand_ins: tuple[StandIn, ...] = ()


class SGLangSession(ProcessSpec):
    """One `sglang.Engine` on one synthetic model, with its adapters loaded under their names.

    Attributes:
        model: name in `kit.synthetic.catalogue`.
        adapters: names of adapters of that model.
        dtype: ``float32``, ``bfloat16`` or ``float16``.
        engine: further keyword arguments of `sglang.Engine`.
    """

    kind: Literal["sglang"] = "sglang"
    model: str
    adapters: tuple[str, ...]
    dtype: Literal["float32", "bfloat16", "float16"]
    engine: dict[str, JsonValue]


class PinnedFolder(Record):
    """A pinned asset (`kit.asset`) that a session reads.

    Attributes:
        name: of its row. revision: full commit hash; empty where the row is not locked.
        files: of its row. The host holds their SHA-256 against the content; the worker looks at presence and size.
    """

    name: str
    revision: str
    files: tuple[PinnedFile, ...]

    @property
    def folder(self) -> str:
        """Where its files lie, relative to the folder of the pinned assets."""
        return f"{self.name}/{self.revision}/files"


class PinnedModelSession(ProcessSpec):
    """One `sglang.Engine` on a real model, with one adapter.

    Attributes:
        model, adapter: their assets; the adapter's also holds the recorded sample.
        engine: keyword arguments of `sglang.Engine`.
    """

    kind: Literal["sglang-pinned"] = "sglang-pinned"
    model: PinnedFolder
    adapter: PinnedFolder
    engine: dict[str, JsonValue]

    @property
    def assets(self) -> tuple[PinnedFolder, ...]:
        """All that must lie in the folder of the pinned assets."""
        return (self.model, self.adapter)


class PinnedTextsSession(ProcessSpec):
    """One `sglang.Engine` on a real model with its tokenizer, and several adapters.

    Attributes:
        model: its asset. adapters: theirs, by the names under which they are served.
        dtype: of weights and activations, of engine and peer.
        engine: keyword arguments of `sglang.Engine`.
    """

    kind: Literal["sglang-pinned-texts"] = "sglang-pinned-texts"
    model: PinnedFolder
    adapters: dict[str, PinnedFolder]
    dtype: Literal["float32", "bfloat16", "float16"]
    engine: dict[str, JsonValue]

    @property
    def assets(self) -> tuple[PinnedFolder, ...]:
        """All that must lie in the folder of the pinned assets."""
        return (self.model, *self.adapters.values())


class KernelSession(ProcessSpec):
    """One process with one attention-kernel library.

    Attributes:
        library: which subject, such as ``triton``.
        interpreted: run in Triton's interpreter on the CPU instead of on a device.
    """

    kind: Literal["kernels"] = "kernels"
    library: KernelLibrary
    interpreted: bool


class CollectiveSession(ProcessSpec):
    """One process per GPU, which meet and reduce tensors.

    Attributes:
        ranks: how many. device: of torch; ``cpu`` runs them by gloo.
    """

    kind: Literal["collectives"] = "collectives"
    ranks: int = Field(ge=2, le=31)
    device: str


class OfflineSession(ProcessSpec):
    """Kernels that are compiled and followed without the hardware that they are for; each case in a process of its own.

    Attributes:
        architectures: that its cases are about.
    """

    kind: Literal["offline"] = "offline"
    architectures: tuple[str, ...]


class NullSession(ProcessSpec):
    """The null subject, for rehearsals: ready after `start_seconds`, and it may die in shutting down, after all its cases.

    Attributes:
        architecture: what it says that the machine is; None: its processor's. It computes on none.
    """

    kind: Literal["null"] = "null"
    start_seconds: float = 0.0
    abort_at_end: bool = False
    architecture: str | None = None


SessionSpec = Annotated[
    SGLangSession
    | PinnedModelSession
    | PinnedTextsSession
    | KernelSession
    | CollectiveSession
    | OfflineSession
    | NullSession,
    Field(discriminator="kind"),
]


OF_PINNED: Final = (PinnedModelSession, PinnedTextsSession)
"""Sessions that read pinned assets."""


class OtherLimit(Record):
    """A limit that this hardware has instead of the check's own.

    Attributes:
        measurement: its name, such as ``rouge_l``; the comparison stays.
        limit: in the unit of the measurement.
        reason: why this hardware differs. link: where that is told.
    """

    measurement: str = Field(min_length=1)
    limit: float = Field(allow_inf_nan=False)
    reason: str = Field(min_length=10)
    link: str = Field(pattern=r"^https://\S+$")


class InjectedFault(Record):
    """A deliberate fault (`kit.faults.catalogue`), for the kit's own self-test: name and strength."""

    name: str
    strength: float


class Case(Record):
    """One check with a stable id ``battery/subject/aspect``.

    Attributes:
        session: id of the session that answers it.
        spec: what is computed.
        skip: why it does not apply to this profile; None if it does.
        limits: those that differ on this hardware.
        faults: deliberate faults of this case alone; empty except in a self-test (`kit.selftest`).
        sweep: strengths of its one fault, the weakest first: the smallest that is red is looked for. Empty: the fault is as it says.
        edition: of an engine's adapters: 0 for those of the catalogue; else their weights are drawn anew.
    """

    id: str
    session: str
    spec: CheckSpec
    skip: str | None = None
    limits: tuple[OtherLimit, ...] = ()
    faults: tuple[InjectedFault, ...] = ()
    sweep: tuple[float, ...] = ()
    edition: int = Field(default=0, ge=0)

    @property
    def battery(self) -> str:
        """The part of the id before the first slash."""
        return self.id.split("/", 1)[0]


class Session(Record):
    """One child process of the worker.

    Attributes:
        start_seconds: time limit until it is ready for cases.
        case_seconds: time limit of each case.
        gpus: how many GPUs it needs for itself, or its share of (`Devices.sessions_at_once`); without GPUs, 1 stands for the CPU.
        alone: whether no other session may run on these GPUs meanwhile, as a real model needs nearly all of their memory.
    """

    id: str
    spec: SessionSpec
    start_seconds: float
    case_seconds: float
    gpus: int = Field(default=1, ge=1)
    alone: bool = False


class Devices(Record):
    """What the sessions of a plan share.

    Attributes:
        count: GPUs, or 1 for the CPU.
        sessions_at_once: how many sessions may run on one of them at a time.
        visible: the variable that tells a process which GPUs are its own; None without GPUs.
    """

    count: int = Field(default=1, ge=1)
    sessions_at_once: int = Field(default=1, ge=1)
    visible: Literal["CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"] | None = None


class AssetFile(Record):
    """A file below the assets folder: its relative path and SHA-256 (hex)."""

    path: str
    sha256: str


class Plan(Record):
    """All that a worker needs to know; written to ``plan.json`` in the results folder before anything starts.

    Attributes:
        run_id: unique id, also the value of the container label ``kit.run``.
        profile: name of the profile. architecture: what the devices must report, such as gfx950; a session refuses any other.
        sessions: in the order in which they start.
        devices: what they share.
        cases: every planned case, skipped ones included.
        omitted: how many cases of the profile a selection left out.
        assets: what the assets folder must hold, checked before use.
        faults: deliberate faults of every case; empty except in a self-test.
        run_seconds: time limit of the whole run, enforced by the host.
        mode: how strict the host judges, ``ci`` or ``qualify``.
        rerun_of: id of the run of which only what was not green is planned here; None for a run of its own.
        inputs: SHA-256 (hex) of the files that lie beside the plan and decide the verdicts: profile and waivers.
    """

    schema_version: Literal[1] = PLAN_SCHEMA
    run_id: str
    profile: str
    architecture: str
    sessions: tuple[Session, ...]
    devices: Devices = Devices()
    cases: tuple[Case, ...]
    omitted: int = Field(default=0, ge=0)
    assets: tuple[AssetFile, ...] = ()
    faults: tuple[InjectedFault, ...] = ()
    run_seconds: float
    mode: Literal["ci", "qualify"] = "ci"
    rerun_of: str | None = None
    inputs: dict[str, str] = Field(default_factory=dict)

    def cases_of(self, session_id: str) -> tuple[Case, ...]:
        """The cases that a session must answer, in order, without those skipped at planning."""
        return tuple(c for c in self.cases if c.session == session_id and c.skip is None)

    @property
    def injected(self) -> tuple[InjectedFault, ...]:
        """Every deliberate fault, each once: where there is one, the run says nothing about the hardware."""
        return tuple(dict.fromkeys((*self.faults, *(fault for case in self.cases for fault in case.faults))))

    @property
    def pinned(self) -> tuple[PinnedFolder, ...]:
        """The pinned assets that cases of this plan need, without those of skipped cases; sorted by name."""
        specs = [s.spec for s in self.sessions if isinstance(s.spec, OF_PINNED) and self.cases_of(s.id)]
        found = {asset.name: asset for spec in specs for asset in spec.assets}
        return tuple(found[name] for name in sorted(found))
