"""``kit schema``: the JSON schemas of what kit writes."""

from typing import Annotated

import typer


def schema(name: Annotated[str, typer.Argument(help="result, event, plan or profile.")]) -> None:
    """Print the JSON schema of result.json, of one line of events.jsonl, of plan.json, or of profile.json."""
    from kit.results.schema import schema_of

    print(schema_of(name), end="")
