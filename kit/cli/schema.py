"""``kit schema``: the JSON schemas of what kit writes."""

from typing import Annotated

import typer


def schema(name: Annotated[str, typer.Argument(help="result, event or plan.")]) -> None:
    """Print the JSON schema of result.json, of one line of events.jsonl, or of plan.json."""
    from kit.results.schema import schema_of

    print(schema_of(name), end="")
