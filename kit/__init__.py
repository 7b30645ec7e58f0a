"""kit: a containerized hardware conformance kit for LLM serving with LoRA."""

__version__ = "0.1.0"
