"""Values of fields of peft's `LoraConfig`, as adapter_config.json holds them."""

from pydantic import JsonValue

Config = dict[str, JsonValue]

LEFT_BY_TRAINING: Config = {
    "corda_config": {"corda_method": "ipm"},
    "eva_config": {"rho": 2.0, "tau": 0.99},
    "init_lora_weights": False,
    "loftq_config": {"loftq_bits": 4, "loftq_iter": 1},
    "lora_ga_config": {},
    "megatron_config": {},
    "megatron_core": "megatron.core",
    "velora_config": {},
}
"""Matters to training alone: how weights begin, and how gradients are computed."""

DEFAULTS: Config = {
    "alora_invocation_tokens": None,
    "alpha_pattern": {},
    "arrow_config": None,
    "auto_mapping": None,
    "corda_config": None,
    "ensure_weight_tying": False,
    "eva_config": None,
    "exclude_modules": None,
    "fan_in_fan_out": False,
    "init_lora_weights": True,
    "kasa_config": None,
    "layer_replication": None,
    "layers_pattern": None,
    "layers_to_transform": None,
    "loftq_config": {},
    "lora_bias": False,
    "lora_ga_config": None,
    "megatron_config": None,
    "megatron_core": "megatron.core",
    "modules_to_save": None,
    "monteclora_config": None,
    "peft_version": "0.21.2",
    "qalora_group_size": 16,
    "rank_pattern": {},
    "revision": None,
    "target_parameters": None,
    "trainable_token_indices": None,
    "use_bdlora": None,
    "use_qalora": False,
    "velora_config": None,
}
"""What peft 0.21.2 writes beside the fields of kit's own adapters."""
