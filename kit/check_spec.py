"""What a case asks: one spec per check, as data. The specs of kernels stand in modules of their own."""

from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from kit.attention_spec import Extend, GroupedDecode, Prefill
from kit.lora_kernel_spec import ExpertLora, LoraKernel
from kit.measurement import Record
from kit.offline_spec import CompileKernel, ExecuteMlir


class PromptLogprobs(Record):
    """Prompt-token logprobs of one identity, each prompt in a request of its own, against the oracle.

    Attributes:
        adapter: name of the adapter, None for the base model.
        prompt_lengths: tokens per prompt; the token ids follow from the seed (`kit.synthetic.prompts`).
        seed: seed of the prompts.
    """

    check: Literal["prompt-logprobs"] = "prompt-logprobs"
    adapter: str | None
    prompt_lengths: tuple[int, ...]
    seed: int


class GivenPrompt(Record):
    """Logprobs and token ids of one prompt that is written out, for inputs at the edge of what is legal.

    Attributes:
        adapter: name of the adapter, None for the base model.
        tokens: the prompt.
    """

    check: Literal["given-prompt"] = "given-prompt"
    adapter: str | None
    tokens: tuple[int, ...]


class MixedBatch(Record):
    """Requests that are sent in one message, so that they meet in one batch; row by row.

    Attributes:
        composition: the identity of every row (None is the base model).
        prompt_lengths: tokens of each prompt, at least 1; the token ids follow from the seed and the row.
        new_tokens: how many tokens each row generates, at least 1.
    """

    composition: tuple[str | None, ...] = Field(min_length=1)
    prompt_lengths: tuple[Annotated[int, Field(ge=1)], ...]
    new_tokens: tuple[Annotated[int, Field(ge=1)], ...]

    @model_validator(mode="after")
    def _every_row(self) -> Self:
        if not len(self.composition) == len(self.prompt_lengths) == len(self.new_tokens):
            raise ValueError("expected an identity, a length and a number of new tokens for every row")
        return self


class MixedBatches(Record):
    """Batches of several identities, one after the other: every row against the oracle and against the same row alone.

    Attributes:
        batches: as they follow each other; nothing else is sent between them.
        alone: how a row is asked alone: by the same request, or by its whole text as a prompt, which costs one step for any length.
        slots: of the engine, where it has fewer than identities; None where every identity has one.
        seed: of the prompts; rows of the same place and length have the same prompt in every batch.
    """

    check: Literal["mixed-batches"] = "mixed-batches"
    batches: tuple[MixedBatch, ...] = Field(min_length=1)
    alone: Literal["same-request", "as-prompt"] = "same-request"
    slots: int | None = Field(default=None, ge=1)
    seed: int


class BatchInvariance(Record):
    """The first row alone and within batches of other sizes: how far its values move, and that they are right in each.

    Attributes:
        batches: the first is the row alone; it is the first row of all others too.
        exact: whether no bit may move, as SGLang's deterministic mode promises; else that is reported and not judged.
        seed: as in `MixedBatches`.
    """

    check: Literal["batch-invariance"] = "batch-invariance"
    batches: tuple[MixedBatch, ...] = Field(min_length=2)
    exact: bool
    seed: int

    @model_validator(mode="after")
    def _one_first_row(self) -> Self:
        firsts = {(b.composition[0], b.prompt_lengths[0], b.new_tokens[0]) for b in self.batches}
        if len(firsts) > 1 or len(self.batches[0].composition) > 1:
            raise ValueError("expected one row alone, and batches that begin with it")
        return self


class DecodeLogprobs(Record):
    """Logprobs of greedily generated tokens: against the oracle, and against the same text sent as a prompt.

    Attributes:
        adapter: name of the adapter, None for the base model.
        prompt_length: tokens of the prompt, at least 1. new_tokens: how many are generated; the end-of-text token ends nothing.
        seed: seed of the prompt.
    """

    check: Literal["decode-logprobs"] = "decode-logprobs"
    adapter: str | None
    prompt_length: int = Field(ge=1)
    new_tokens: int = Field(ge=1)
    seed: int


class Repeatability(Record):
    """The same request over and over, one at a time: every answer is the first one, bit by bit.

    Attributes:
        adapter: name of the adapter, None for the base model.
        times: how often it is sent.
        prompt_length, new_tokens, seed: as in `DecodeLogprobs`.
    """

    check: Literal["repeatability"] = "repeatability"
    adapter: str | None
    times: int = Field(ge=2)
    prompt_length: int = Field(ge=1)
    new_tokens: int = Field(ge=1)
    seed: int


class CacheReuse(Record):
    """A request that finds its prompt in the radix cache gives what it gave cold, and what the oracle says.

    Attributes:
        adapter: name of the adapter, None for the base model.
        prompt_length, new_tokens, seed: as in `DecodeLogprobs`.
    """

    check: Literal["cache-reuse"] = "cache-reuse"
    adapter: str | None
    prompt_length: int = Field(ge=2)
    new_tokens: int = Field(ge=1)
    seed: int


class BatchText(Record):
    """The greedy texts of one identity in batches of several, against plain transformers; where one differs, triage says why.

    Attributes:
        identity: whose rows are judged; None is the base model.
        batches: the identity of every row of every batch.
        prompt_lengths: tokens per row. new_tokens: how many are generated.
        seed: seed of the first batch's prompts; that of each further one is one more.
    """

    check: Literal["batch-text"] = "batch-text"
    identity: str | None
    batches: tuple[tuple[str | None, ...], ...] = Field(min_length=1)
    prompt_lengths: tuple[int, ...]
    new_tokens: int = Field(ge=1)
    seed: int


class TextBatch(Record):
    """Rows of one request: the identity of each (None is the base model), and which of upstream's prompts it has, from 0."""

    identities: tuple[str | None, ...]
    prompts: tuple[int, ...]


class UpstreamTexts(Record):
    """As `BatchText`, on a real model with upstream's prompts and limits; and the logprobs of those prompts.

    Attributes:
        identity: whose rows are judged. batches: all that are sent.
        new_tokens: how many are generated; a text ends where the model ends it.
        rouge_l: least ROUGE-L. prefill: largest |Δ| of the five largest logprobs of prompts up to 100 tokens, nat.
        group: list of SGLang's lora_utils.py that these limits stand in.
        differing: as in `TrainerLogprobs`.
    """

    check: Literal["upstream-texts"] = "upstream-texts"
    identity: str | None
    batches: tuple[TextBatch, ...] = Field(min_length=1)
    new_tokens: int = Field(ge=1)
    rouge_l: float
    prefill: float
    group: str
    differing: tuple[str, ...] = ()


class UpstreamSplitting(Record):
    """Batches with more identities than the engine has slots: different identities give different texts, each its own.

    Attributes:
        batches, new_tokens, differing: as in `UpstreamTexts`.
    """

    check: Literal["upstream-splitting"] = "upstream-splitting"
    batches: tuple[TextBatch, ...] = Field(min_length=1)
    new_tokens: int = Field(ge=1)
    differing: tuple[str, ...] = ()


class Published(Record):
    """What others measured in the same test: value, on what, and where it is told."""

    value: float
    on: str
    link: str = Field(pattern=r"^https://")


class TrainerLogprobs(Record):
    """Prompt logprobs of a recorded text, adapter in use, against what the trainer of that adapter recorded.

    Attributes:
        limit: of mean ½Δ², nat². test: the upstream test that sets it.
        differing: arguments of the engine that are not that test's, each as a clause; without device and attention backends.
        published: what others measured, told beside.
    """

    check: Literal["trainer-logprobs"] = "trainer-logprobs"
    limit: float
    test: str
    differing: tuple[str, ...] = ()
    published: tuple[Published, ...] = ()


class TargetModules(Record):
    """Which modules SGLang finds for an adapter that targets all linear ones, on a tree of Qwen3's modules; runs no model."""

    check: Literal["target-modules"] = "target-modules"


class AllReduce(Record):
    """A sum over all ranks, on every rank.

    Attributes:
        mebibytes: size of each rank's tensor. seconds: after that, ranks that do not answer hang.
    """

    check: Literal["all-reduce"] = "all-reduce"
    dtype: Literal["float32", "bfloat16"]
    mebibytes: int = Field(ge=1)
    seconds: float


class AdapterFile(Record):
    """An adapter whose files are unusual or damaged: honoured or refused with a clear error, and the others unchanged.

    Attributes:
        variant: name in `kit.synthetic.adapter_variants`.
        adapter: the sound adapter of which the variant is made. neighbour: another one, which must stay as it is.
        prompt_lengths, seed: as in `PromptLogprobs`.
    """

    check: Literal["adapter-file"] = "adapter-file"
    variant: str
    adapter: str
    neighbour: str
    prompt_lengths: tuple[int, ...]
    seed: int


class AdapterLife(Record):
    """A program of loading, serving, evicting and unloading adapters; every answer against the oracle.

    Attributes:
        program: name in `kit.synthetic.adapter_programs`.
        adapters: those that the session has loaded and the program may serve; it never unloads them.
        slots: of the engine. seed, operations: of a walk.
    """

    check: Literal["adapter-life"] = "adapter-life"
    program: str
    adapters: tuple[str, ...] = Field(min_length=2)
    slots: int = Field(ge=2)
    seed: int = 0
    operations: int = Field(default=0, ge=0)


class FirstRequests(Record):
    """The first request after a load gives what the tenth gives, and what the oracle says: also where another request is in flight.

    Attributes:
        adapters: as in `AdapterLife`; each shape is loaded anew. slots: of the engine.
        times: how often each is asked. seed: of the prompts.
    """

    check: Literal["first-requests"] = "first-requests"
    adapters: tuple[str, ...] = Field(min_length=2)
    slots: int = Field(ge=2)
    times: int = Field(default=10, ge=2)
    seed: int


class CachedIdentities(Record):
    """One prompt under the base model and adapters, cold and warm: nobody finds what another identity left in the cache.

    Attributes:
        adapters: two that the session has loaded.
        carried: what the requests carry beside the prompt, or how identities change meanwhile (`kit.checks.cached_identities`).
        prompt_length, seed: of the prompt.
    """

    check: Literal["cached-identities"] = "cached-identities"
    adapters: tuple[str, str]
    carried: Literal[
        "nothing",
        "extra-key",
        "extra-key-of-name",
        "extra-key-of-id",
        "cache-salt",
        "priority",
        "sampling",
        "session-id",
        "reload",
        "conversation",
    ]
    prompt_length: int = Field(ge=2)
    seed: int


class NullCheck(Record):
    """What the null subject does in this case; no battery plans it. It lets every way to end be rehearsed without SGLang or a GPU.

    Attributes:
        act: ``pass``, ``fail`` and ``nan`` measure; ``raise`` fails to run; ``kill`` and ``exit`` end the process (by SIGKILL, with
            code 0); ``hang`` never answers; ``orphan`` passes and leaves a process; ``noise`` passes and writes rubbish to
            standard output and to the event pipe; ``flood`` passes and writes 96 MiB to standard output; ``memory`` takes memory
            until it is stopped; ``sleep`` passes after `seconds`.
    """

    check: Literal["null"] = "null"
    act: Literal["pass", "fail", "nan", "raise", "kill", "exit", "hang", "orphan", "noise", "flood", "memory", "sleep"]
    seconds: float = 0.0


CheckSpec = Annotated[
    PromptLogprobs
    | AdapterFile
    | AdapterLife
    | FirstRequests
    | CachedIdentities
    | GivenPrompt
    | MixedBatches
    | BatchInvariance
    | DecodeLogprobs
    | Repeatability
    | CacheReuse
    | BatchText
    | UpstreamTexts
    | UpstreamSplitting
    | TrainerLogprobs
    | TargetModules
    | GroupedDecode
    | Extend
    | Prefill
    | LoraKernel
    | ExpertLora
    | AllReduce
    | CompileKernel
    | ExecuteMlir
    | NullCheck,
    Field(discriminator="check"),
]

OF_ASSETS: Final = (TrainerLogprobs, UpstreamTexts, UpstreamSplitting)
"""Checks that pinned assets are needed for."""
