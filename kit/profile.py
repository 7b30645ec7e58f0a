"""Hardware profiles: one TOML file per hardware SKU and GPU count. What differs between vendors stands there, not in code."""

import json
import re
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ByteSize,
    Field,
    JsonValue,
    PlainSerializer,
    WithJsonSchema,
    model_validator,
)

from kit.asset import ASSETS_FILE
from kit.errors import UsageFault
from kit.lora_model import LORA_MODELS_FILE, AttentionKind
from kit.measurement import Record
from kit.names import case_glob, unknown
from kit.paths import data_folder
from kit.plan import KernelLibrary, OtherLimit, StandIn
from kit.profile_layers import Layers, read_layers
from kit.text_model import TEXT_MODELS_FILE
from kit.toml import checked

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|min|h)")
_SIZE = re.compile(r"\d{1,15}(?:\.\d{1,15})? ?[A-Za-z]+")
_LONGEST = timedelta(days=7)
_LARGEST = 2**50
_SECONDS = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0}


def _duration(value: object) -> timedelta:
    if isinstance(value, timedelta):
        return value
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError("expected a duration with its unit (ms, s, min or h), such as '90s'")
    try:
        return timedelta(seconds=float(match[1]) * _SECONDS[match[2]])
    except OverflowError:
        return timedelta.max


def _bounded_duration(value: timedelta) -> timedelta:
    if not timedelta(0) < value <= _LONGEST:
        raise ValueError(f"expected a duration above 0 and of at most {_LONGEST.days} days")
    return value


def _show_duration(value: timedelta) -> str:
    return f"{value.total_seconds():.6f}".rstrip("0").rstrip(".") + "s"


def _size(value: object) -> object:
    if not isinstance(value, str) or not _SIZE.fullmatch(value):
        raise ValueError("expected a size with its unit, such as '6GiB'")
    return value


def _bounded_size(least: int) -> AfterValidator:
    def check(value: ByteSize) -> ByteSize:
        if not least <= value <= _LARGEST:
            raise ValueError(f"expected a size of at least {_show_size(least)} and at most {_show_size(_LARGEST)}")
        return value

    return AfterValidator(check)


def _show_size(value: int) -> str:
    unit, factor = next(((u, f) for u, f in (("GiB", 2**30), ("MiB", 2**20)) if value % f == 0), ("B", 1))
    return f"{value // factor}{unit}"


Duration = Annotated[
    timedelta,
    BeforeValidator(_duration),
    AfterValidator(_bounded_duration),
    PlainSerializer(_show_duration, return_type=str),
    WithJsonSchema({"type": "string", "pattern": f"^{_DURATION.pattern}$", "examples": ["90s"]}),
]
Size = Annotated[
    ByteSize,
    BeforeValidator(_size),
    PlainSerializer(_show_size, return_type=str),
    WithJsonSchema({"type": "string", "pattern": f"^{_SIZE.pattern}$", "examples": ["6GiB"]}),
]
PROFILE_SCHEMA: Final = 1
"""Version of the effective profile, as ``profile.json`` holds it."""
BatteryName = Literal["lora-logprob", "multi-lora", "kernels"]


class ContainerSettings(Record):
    """What the container of a profile gets.

    Attributes:
        memory, shm: limits, with a unit ("6GiB").
        pids: greatest number of processes and threads.
        capabilities: added to none; every one needs its reason beside it. Which devices and groups it gets follows from the
            vendor and the GPUs (`kit.host.devices`); no profile can ask for more.
        seccomp: "default", or "unconfined" where the vendor's runtime needs it.
    """

    memory: Annotated[Size, _bounded_size(64 * 2**20)]
    shm: Annotated[Size, _bounded_size(2**20)]
    pids: int = Field(default=4096, ge=64, le=2**22)
    capabilities: tuple[Literal["SYS_PTRACE"], ...] = ()
    seccomp: Literal["default", "unconfined"] = "default"


class TimeLimits(Record):
    """Time limits with a unit: until a session is ready, of one case, and of the whole run."""

    session_start: Duration
    case: Duration
    run: Duration


MixedBatchSelection = Literal["full", "selection", "few"]
"""How many batches of several identities are asked (`kit.batteries.mixed_batches`)."""


class EngineChange(Record):
    """What differs from a profile's engine settings; what is not named stays.

    Attributes:
        dtype: of weights and activations.
        arguments: keyword arguments of `sglang.Engine`.
        environment: variables set before SGLang is imported.
        gpus: how many GPUs the engine spreads over (tensor parallelism).
        long_text, mixed_batches: as in `EngineSettings`.
    """

    dtype: Literal["float32", "bfloat16", "float16"] | None = None
    arguments: dict[str, JsonValue] = Field(default_factory=dict)
    environment: dict[str, str] = Field(default_factory=dict)
    gpus: int = Field(default=1, ge=1)
    long_text: int | None = Field(default=None, ge=1)
    mixed_batches: MixedBatchSelection | None = None


class EngineVariant(EngineChange):
    """Another way to start the engine, under which the same answers must come (`kit.batteries.variants`).

    Attributes:
        models: synthetic models that are served in this way; empty means all.
        absent: why this variant does not apply to the profile, a sentence; None if it does.
    """

    models: tuple[str, ...] = ()
    absent: str | None = None

    @model_validator(mode="after")
    def _either(self) -> Self:
        if self.absent is not None and self.model_dump(exclude={"absent"}, exclude_defaults=True):
            raise ValueError("key 'absent': a variant that does not apply has no settings")
        if self.absent is None and not self.model_dump(exclude={"models"}, exclude_defaults=True):
            raise ValueError("expected what differs from the engine's settings, or 'absent' with the reason")
        return self


class EngineSettings(Record):
    """How SGLang is started on this hardware.

    Attributes:
        dtype: of weights and activations.
        arguments: keyword arguments of `sglang.Engine`, such as ``attention_backend``.
        environment: variables set before SGLang is imported.
        long_text: how many tokens a long text has that a battery lets the engine generate; fewer where kernels are interpreted.
        mixed_batches: which batches of several identities are asked: all, one of each kind, or a single small one.
        models: what a synthetic model needs beside that, by name.
        variants: other ways to start it, by name.
    """

    dtype: Literal["float32", "bfloat16", "float16"]
    arguments: dict[str, JsonValue]
    environment: dict[str, str] = Field(default_factory=dict)
    long_text: int = Field(default=256, ge=1)
    mixed_batches: MixedBatchSelection = "full"
    models: dict[str, EngineChange] = Field(default_factory=dict)
    variants: dict[str, EngineVariant] = Field(default_factory=dict)


class KernelSettings(Record):
    """Which attention-kernel libraries are checked, and how.

    Attributes:
        libraries: subjects, such as "triton".
        interpreted: run Triton kernels in its interpreter, on the CPU.
        selection: how much of the battery's matrix runs (`kit.batteries.kernels`): all of it, or what an interpreter does in seconds.
    """

    libraries: tuple[KernelLibrary, ...]
    dtype: Literal["float16", "bfloat16"]
    interpreted: bool = False
    environment: dict[str, str] = Field(default_factory=dict)
    selection: Literal["full", "interpreter"] = "full"


class RealModelSettings(Record):
    """How the real models of ``lora_models.toml`` are served on this hardware.

    Attributes:
        models: rows whose cases belong to this profile. Any other row's case runs where it is asked for by name.
        texts: the same for ``text_models.toml``.
        attention: keyword arguments of `sglang.Engine` by the kind of attention; a model of another kind is skipped.
        arguments: further ones, for every model. They win over the row's, and every difference is told.
        environment: variables set before SGLang is imported.
        session_start, case: time limits, since to load weights takes longer than to make them.
    """

    models: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    attention: dict[AttentionKind, dict[str, JsonValue]] = Field(default_factory=dict)
    arguments: dict[str, JsonValue] = Field(default_factory=dict)
    environment: dict[str, str] = Field(default_factory=dict)
    session_start: Duration
    case: Duration


class OfflineSettings(Record):
    """What is checked about hardware that is not there (docs/offline.md).

    Attributes:
        architectures: GPUs that kernels are compiled for; the MLIR that Wave emits for the AMD ones is executed.
        selection: everything, or what two processors do within a minute or so.
        stands_for: the profile whose checks without hardware these are; None where they stand beside a profile's others.
        case: time limit of each case.
    """

    architectures: tuple[str, ...] = Field(min_length=1)
    selection: Literal["full", "small"]
    stands_for: str | None = None
    case: Duration


class ProfileLimit(OtherLimit):
    """A limit that differs on this hardware, and nowhere else (docs/limits.md).

    Attributes:
        case: glob of case ids; the battery in it is literal.
    """

    case: Annotated[str, AfterValidator(case_glob)]


class Profile(Record):
    """One hardware SKU and GPU count.

    Attributes:
        name: such as ``MI355X-4gpu``; found case-insensitively, by file name and by `aliases`.
        vendor: ``cpu`` has no GPU.
        architecture: as the driver reports it: gfx950, sm_100, sm_90; x86_64 for a CPU.
        gpus: how many GPUs the profile needs.
        sessions_at_once: how many sessions may share one GPU, or the CPU, at a time.
        first: sessions that start before the others, since they take longest.
        gpu_memory: what each of them has at least, as its driver reports it.
        partition: mode of a GPU that can be split, compute and memory, such as ``SPX/NPS1``; None where the architecture has none.
        pci_devices: PCI device ids of this model, where the architecture has several; a GPU with another id is not this hardware.
        image: name of a definition in ``images/``.
        missing: what kit lacks for this hardware, each a sentence; such a profile is planned and shown, and never run.
        mandatory: batteries that `qualify` may not miss.
        limits: what differs from the limits of the checks, each with its reason.
        waivers: ids in ``waivers.toml`` of those that count on this hardware; None, in profiles of earlier kits, means all.
        stand_ins: modules that replace what this profile's stack lacks; each is named in the report.
        real_models: how real models are served; None where none can be.
        offline: what is checked about hardware that is not there; None where nothing is.
        does_not_prove: what a green run here leaves open, each a sentence of the report.
    """

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    title: str
    aliases: tuple[str, ...] = ()
    vendor: Literal["cpu", "amd", "nvidia", "intel"]
    architecture: str
    gpus: int = Field(ge=0)
    sessions_at_once: int = Field(default=1, ge=1, le=16)
    first: tuple[str, ...] = ()
    gpu_memory: Size | None = None
    partition: str | None = Field(default=None, pattern=r"^[A-Z0-9]+/NPS[0-9]+$")
    pci_devices: tuple[Annotated[str, Field(pattern=r"^0x[0-9a-f]{4}$")], ...] = ()
    image: str
    missing: tuple[str, ...] = ()
    mandatory: tuple[BatteryName, ...]
    limits: tuple[ProfileLimit, ...] = ()
    waivers: tuple[str, ...] | None = None
    stand_ins: tuple[StandIn, ...] = ()
    does_not_prove: tuple[str, ...] = ()
    container: ContainerSettings
    time: TimeLimits
    engine: EngineSettings
    kernels: KernelSettings
    real_models: RealModelSettings | None = None
    offline: OfflineSettings | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.vendor == "cpu") != (self.gpus == 0):
            wanted = "0" if self.vendor == "cpu" else "at least 1"
            raise ValueError(f"key 'gpus': expected {wanted} with vendor '{self.vendor}', found {self.gpus}")
        if not self.mandatory:
            raise ValueError("key 'mandatory': expected at least one battery, found none")
        if "kernels" in self.mandatory and not self.kernels.libraries:
            raise ValueError(
                "key 'kernels.libraries': expected at least one, as the battery 'kernels' is mandatory, found none"
            )
        return self


_RETIRED = ("devices", "groups", "gpu_request")


def without_retired_keys(data: bytes) -> bytes:
    """A stored profile as this kit reads it: earlier kits named devices in it. Such a profile is read back, and never run again."""
    try:
        profile = json.loads(data)
    except ValueError:
        return data
    container = profile.get("container") if isinstance(profile, dict) else None
    if not isinstance(container, dict) or not container.keys() & set(_RETIRED):
        return data
    profile["container"] = {key: value for key, value in container.items() if key not in _RETIRED}
    return json.dumps(profile).encode()


NOT_PROFILES = {"waivers.toml", ASSETS_FILE, LORA_MODELS_FILE, TEXT_MODELS_FILE}


def load_profiles(folder: Path | None = None) -> dict[str, Profile]:
    """All profiles by name.

    Raises:
        UsageFault: a damaged file, or a name or alias that two profiles claim.
    """
    folder = folder or data_folder("profiles")
    profiles: dict[str, Profile] = {}
    claimed: dict[str, str] = {}
    for path in sorted(folder.glob("*.toml")):
        if path.name in NOT_PROFILES:
            continue
        profile = _profile_of(read_layers(path))
        if profile.name.casefold() != path.stem.casefold():
            raise UsageFault(f"{path}: key 'name' is '{profile.name}'", "name the file after the profile")
        for label in (profile.name, *profile.aliases):
            if other := claimed.get(label.casefold()):
                raise UsageFault(f"{path}: the name '{label}' already belongs to '{other}'", "choose another")
            claimed[label.casefold()] = profile.name
        profiles[profile.name] = profile
    return profiles


def find_profile(name: str, folder: Path | None = None, changes: Sequence[str] = ()) -> Profile:
    """The profile with this name or alias, whatever its case; ``NAME-offline`` is what of it needs no hardware.

    Args:
        changes: what ``--set`` says, each KEY=VALUE; a changed profile has another name.

    Raises:
        UsageFault: no such profile; the near matches are named. Or a change that the profile cannot have.
    """
    from kit.offline_profile import SUFFIX, without_hardware

    if name.casefold().endswith(SUFFIX):
        profile = find_layers(name[: -len(SUFFIX)], folder, changes)[0]
        return without_hardware(profile, find_layers("cpu", folder)[0])
    return find_layers(name, folder, changes)[0]


def find_layers(name: str, folder: Path | None = None, changes: Sequence[str] = ()) -> tuple[Profile, Layers]:
    """As `find_profile`, with where every value comes from."""
    folder = folder or data_folder("profiles")
    profiles = load_profiles(folder)
    labels = {label.casefold(): profile for profile in profiles.values() for label in (profile.name, *profile.aliases)}
    found = labels.get(name.casefold())
    if found is None:
        raise unknown("profile", name, [label for p in profiles.values() for label in (p.name, *p.aliases)])
    path = next(file for file in folder.glob("*.toml") if file.stem.casefold() == found.name.casefold())
    layers = read_layers(path).with_changes(changes)
    return (_profile_of(layers) if changes else found), layers


def _profile_of(layers: Layers) -> Profile:
    return checked(layers.data, Profile, layers.file_of)
