"""Adapter files as they are found in the wild, by name: what each stands for, and what a right engine does with it.

Data only; `kit.synthetic.adapter_files` writes the files. Each is made from one sound adapter by one change. Fields are those of
`LoraConfig` of peft 0.21; damage is what downloads, converters and trainers leave behind.
"""

from dataclasses import dataclass
from enum import StrEnum

from kit.names import unknown


class Right(StrEnum):
    """What a right engine does with a file.

    HONOUR: serves what the file means; a refusal is wrong, since every LoRA engine must know this.
    EITHER: serves what the file means, or refuses with an error that names the cause.
    REFUSE: refuses with an error that names the cause.
    """

    HONOUR = "honour"
    EITHER = "honour or refuse"
    REFUSE = "refuse"


class Operation(StrEnum):
    """What is asked of the engine: load the file under a fresh name, or under a name that is taken, or only serve a name never loaded."""

    LOAD = "load"
    LOAD_AGAIN = "load under a loaded name"
    SERVE = "serve without loading"


@dataclass(frozen=True)
class Variant:
    """One variant of an adapter's files.

    Attributes:
        stands_for: the field or the damage.
        causes: words of which a clear refusal holds at least one, in lower case.
        like: another variant, of which an engine dies in the same way; once it has, this one is not tried: a start costs too much.
    """

    name: str
    right: Right
    stands_for: str
    causes: tuple[str, ...] = ()
    operation: Operation = Operation.LOAD
    like: str = ""


def _honoured(name: str, stands_for: str, like: str = "") -> Variant:
    return Variant(name, Right.HONOUR, stands_for, like=like)


def _either(name: str, stands_for: str, *causes: str, like: str = "") -> Variant:
    return Variant(name, Right.EITHER, stands_for, causes, like=like)


def _refused(
    name: str, stands_for: str, *causes: str, operation: Operation = Operation.LOAD, like: str = ""
) -> Variant:
    return Variant(name, Right.REFUSE, stands_for, causes, operation, like)


_MODULE = ("module", "weight", "tensor", "lora_a", "lora_b", "proj")
_SHAPE = ("shape", "size", "dimension", "rank")
_FINITE = ("nan", "inf", "finite")
_ABSENT = ("not loaded", "never been loaded", "unknown")
_FILE = ("header", "safetensors", "deserializ", "truncated", "incomplete")

_CORE = (
    _honoured("as-peft-writes-it", "every field of LoraConfig at its default"),
    _honoured("rank-1", "r: the smallest"),
    _honoured("rank-5", "r: odd, and no multiple of a block"),
    _honoured("alpha-fraction", "lora_alpha: not an integer"),
    _honoured("alpha-negative", "lora_alpha: below zero"),
    _honoured("alpha-0", "lora_alpha: zero, so the adapter is the base model"),
    _honoured("rslora", "use_rslora: scaling alpha / √r"),
    _honoured("dropout", "lora_dropout: has no effect at inference"),
    _honoured(
        "training-only",
        "eva_config, corda_config, loftq_config, lora_ga_config, megatron_*, velora_config, init_lora_weights",
    ),
    _honoured("targets-q-v", "target_modules: q_proj and v_proj, LoRA's own choice"),
    _honoured("targets-q", "target_modules: q_proj alone"),
    _honoured("targets-q-k-o", "target_modules: attention without v_proj"),
    _honoured("targets-o-down", "target_modules: no fused module"),
    _honoured("targets-gate", "target_modules: gate_proj without up_proj"),
    _honoured("targets-full-names", "target_modules: full names of modules, those of layer 1"),
    _honoured("file-bfloat16", "tensors in bfloat16"),
    _honoured("file-float16", "tensors in float16"),
    _honoured("file-float64", "tensors in float64"),
)

_FIELDS = (
    _either("targets-all-linear", "target_modules: 'all-linear'", "target_modules", "all-linear"),
    _either("targets-regex", "target_modules: a regular expression", "target_modules", "target module", "regular expression"),
    _either("targets-unlisted", "target_modules: tensors of modules that it does not list", "target_modules", *_MODULE),
    _either("exclude-modules", "exclude_modules: takes o_proj out", "exclude_modules"),
    _either("exclude-modules-with-tensors", "exclude_modules: takes o_proj out, whose tensors are there", "exclude_modules", *_MODULE),
    _either("layers-to-transform", "layers_to_transform, layers_pattern: layer 1 alone", "layers_to_transform", "layer"),
    _either("alpha-pattern", "alpha_pattern: v_proj with an alpha of its own", "alpha_pattern"),
    _either("alpha-pattern-one-layer", "alpha_pattern: one module of one layer", "alpha_pattern"),
    _either("modules-to-save-lm-head", "modules_to_save: a trained lm_head", "modules_to_save", "lm_head"),
    _either("bias-all", "bias: 'all', on a base that has none", "bias"),
    _either("lora-bias", "lora_bias: B has a bias", "lora_bias", "bias"),
    _either("dora", "use_dora, with its magnitudes", "dora"),
    _either("fan-in-fan-out", "fan_in_fan_out: means nothing for linear layers", "fan_in_fan_out"),
    _either("init-gaussian", "init_lora_weights: 'gaussian' has no effect on trained weights", "init_lora_weights"),
    _either("init-pissa", "init_lora_weights: 'pissa', the base is W without its largest components", "init_lora_weights", "pissa"),
    _either("trainable-tokens", "trainable_token_indices: trained rows of the embedding", "trainable_token", "embed_tokens"),
    _either("qalora", "use_qalora: means nothing for linear layers", "qalora"),
    _either("alora", "alora_invocation_tokens: inactive, the prompts do not hold them", "alora"),
    _either("base-of-another-name", "base_model_name_or_path, revision: another name, the same shapes", "base_model"),
    _either("task-type", "task_type, auto_mapping: another task", "task_type"),
    _either("unknown-field", "a field that no version of peft has", "from_the_future"),
    _either("large-values", "values above 65,504, the largest of float16", "overflow", "finite", "range"),
    _either("integers", "tensors in int32", "dtype", "int32", "integer"),
    _either("added-tokens", "added_tokens.json: one token more than the base has", "token"),
    _either("stray-safetensors", "a second safetensors file beside the adapter's, as trainers leave", "safetensors", "file"),
    _refused("layer-replication", "layer_replication: a deeper model", "replication", "layer"),
    _refused("kasa", "kasa_config: needs diagonals that are not there", "kasa"),
    _refused("bdlora", "use_bdlora: needs block-diagonal factors that are not there", "bdlora"),
    _refused("monteclora", "monteclora_config: needs tensors that are not there", "monteclora"),
    _refused("arrow", "arrow_config: routes between adapters that are not there", "arrow"),
    _refused("target-parameters", "target_parameters without target_modules", "target_parameters", "target_modules"),
    _refused("peft-type-ia3", "peft_type: not LoRA", "peft_type", "ia3", "peft type"),
)  # fmt: skip

_DAMAGE = (
    _refused("weights-truncated", "adapter_model.safetensors: its second half is missing", *_FILE),
    _refused("weights-garbage", "adapter_model.safetensors: no header", *_FILE),
    _refused("weights-empty", "adapter_model.safetensors: no bytes", *_FILE),
    _refused("no-weights", "adapter_model.safetensors is missing", "weight", "safetensors"),
    _refused("no-tensors", "adapter_model.safetensors holds no tensor", "tensor", "weight", "empty"),
    _refused("no-config", "adapter_config.json is missing", "adapter_config.json"),
    _refused("config-cut", "adapter_config.json: its second half is missing", "adapter_config", "json"),
    _refused("config-empty", "adapter_config.json: no field at all", "target_modules", "peft_type", "'r'", "lora_alpha"),
    _refused("no-folder", "nothing at the path", "path", "folder", "directory", "exist", "found"),
    _refused("rank-above-max", "r: above max_lora_rank", "rank"),
    _refused("rank-0", "r: zero", "rank", "'r'", "r ="),
    _refused("rank-text", "r: a text", "rank", "'r'", "r ="),
    _refused("alpha-nan", "lora_alpha: NaN", "alpha", "nan"),
    _refused("alpha-text", "lora_alpha: a text", "alpha"),
    _refused("targets-unknown", "target_modules: a module that the base lacks", "target", *_MODULE),
    _refused("nan-in-a", "one NaN in an A", *_FINITE),
    _refused("inf-in-b", "one infinity in a B", *_FINITE),
    _refused("nan-everywhere", "every value NaN, as after a failed training", *_FINITE),
    _refused("missing-layer", "no tensors for layer 1", "missing", *_MODULE),
    _refused("missing-module", "no tensors for o_proj, which target_modules lists", "missing", *_MODULE),
    _refused("missing-lora-a", "the A of one module is missing", *_MODULE),
    _refused("biases", "biases for modules that have none", "bias", *_MODULE),
    _refused("transposed", "A and B stored transposed", *_SHAPE),
    _refused("extra-layer", "tensors for a layer that the base lacks", "layer"),
    _refused("pickle", "adapter_model.bin, a pickle that would run code", "pickle", "weights_only", "unpickl", "weights only"),
    _refused("loaded-name", "a name that is loaded already", "already", operation=Operation.LOAD_AGAIN),
    _refused("name-never-loaded", "a request for a name that was never loaded", *_ABSENT, operation=Operation.SERVE),
)  # fmt: skip

_UNFIT = (
    _refused("extra-module", "tensors for a module that the base lacks", *_MODULE),
    _honoured("targets-k-v", "target_modules: attention without q_proj", like="extra-module"),
    _honoured("targets-up", "target_modules: up_proj without gate_proj", like="extra-module"),
    _either("modules-to-save-norm", "modules_to_save: a trained norm", "modules_to_save", "norm", like="extra-module"),
    _refused("other-base", "tensors for a base of half the hidden size", *_SHAPE, "base"),
    _either("rank-pattern-lower", "rank_pattern: down_proj with a smaller rank", "rank_pattern", like="other-base"),
    _either("rank-pattern-higher", "rank_pattern: down_proj with a larger rank, within the maximum", "rank_pattern", like="other-base"),
    _refused("rank-pattern-above-max", "rank_pattern: above max_lora_rank", "rank", like="other-base"),
    _refused("rank-of-config-wrong", "r: 4, tensors of rank 8", *_SHAPE, like="other-base"),
    _refused("rank-of-b-wrong", "one B of another rank than its A", *_SHAPE, like="other-base"),
    _refused("magnitudes-without-dora", "magnitudes of DoRA without use_dora", "dora", "magnitude", *_MODULE, like="other-base"),
    _refused("missing-lora-b", "the B of one module is missing", *_MODULE, like="other-base"),
)  # fmt: skip
"""Tensors for which the base has no place: names or shapes that do not fit. Engines die of these, so they come last."""

VARIANTS: dict[str, Variant] = {variant.name: variant for variant in (*_CORE, *_FIELDS, *_DAMAGE, *_UNFIT)}


def find_variant(name: str) -> Variant:
    """The variant of this name.

    Raises:
        UsageFault: there is none; the near matches are named.
    """
    if variant := VARIANTS.get(name):
        return variant
    raise unknown("variant of an adapter's files", name, VARIANTS)
