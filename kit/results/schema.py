"""JSON schemas of what a results folder holds, generated from the models (``schemas/``, docs/results-format.md)."""

import json
from typing import Final

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, JsonSchemaValue
from pydantic_core import core_schema

from kit.events import EVENT_SCHEMA, AnyEvent
from kit.names import unknown
from kit.plan import PLAN_SCHEMA, Plan
from kit.profile import PROFILE_SCHEMA, Profile
from kit.results.model import RESULT_SCHEMA, RunResult

_MODELS: Final = {
    "result": (RESULT_SCHEMA, TypeAdapter[object](RunResult), "result.json: a run, complete"),
    "event": (EVENT_SCHEMA, TypeAdapter[object](AnyEvent), "one line of events.jsonl or host.jsonl"),
    "profile": (PROFILE_SCHEMA, TypeAdapter[object](Profile), "profile.json: the effective profile of a run"),
    "plan": (PLAN_SCHEMA, TypeAdapter[object](Plan), "plan.json: what was to be run"),
}
NAMES: Final = tuple(_MODELS)


class _WithNotFinite(GenerateJsonSchema):
    """JSON has no NaN: kit writes it, and infinity, as text."""

    def float_schema(self, schema: core_schema.FloatSchema) -> JsonSchemaValue:
        """A number; or, unless it is bounded or finite, the text of one that is not finite."""
        number = super().float_schema(schema)
        bounded = len(number) > 1 or schema.get("allow_inf_nan") is False
        return number if bounded else {"anyOf": [number, {"enum": ["NaN", "Infinity", "-Infinity"]}]}

    def generate(self, schema: core_schema.CoreSchema, mode: JsonSchemaMode = "validation") -> JsonSchemaValue:
        """With its dialect."""
        return {"$schema": self.schema_dialect, **super().generate(schema, mode)}


def file_name(name: str) -> str:
    """``result-1.json``: the name and the schema's version."""
    return f"{name}-{_MODELS[name][0]}.json"


def schema_of(name: str) -> str:
    """The JSON schema of ``result``, ``event``, ``plan`` or ``profile``, as text. Every file of that schema version fits it.

    Raises:
        UsageFault: no such schema.
    """
    if name not in _MODELS:
        raise unknown("schema", name, _MODELS)
    version, adapter, title = _MODELS[name]
    schema = adapter.json_schema(schema_generator=_WithNotFinite)
    schema |= {"title": title, "$id": f"kit:{name}-{version}"}
    return json.dumps(schema, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
