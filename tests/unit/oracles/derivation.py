"""Derives the oracle's known answers one scalar at a time in 40-digit decimal arithmetic; shares no code with kit.

Prints what `kit.oracles.canary` records. Sine, cosine and π are series, so nothing but `decimal` is used.
"""

import itertools
from decimal import ROUND_HALF_EVEN, Decimal, getcontext

getcontext().prec = 40
getcontext().rounding = ROUND_HALF_EVEN

VOCABULARY, HIDDEN, HEADS, HEAD_DIM, INTERMEDIATE, EXPERTS = 5, 3, 2, 4, 2, 3  # one KV head
TOKENS = (3, 0, 4, 1, 2)
FAMILIES = ("qwen3", "llama", "gpt_oss")
EPSILON, THETA, SCALING = Decimal("1e-6"), Decimal(100), Decimal("1.625")
FACTOR, ORIGINAL = Decimal(4), Decimal(16)
LIMIT, ALPHA = Decimal(3), Decimal("1.702")
WINDOWS = {"qwen3": (None,), "llama": (None,), "gpt_oss": (2, None)}


def cosine_and_sine(x):
    cosine, sine, term, n = Decimal(0), Decimal(0), Decimal(1), 0
    while abs(term) > Decimal("1e-45"):
        sign = -1 if n % 4 in (2, 3) else 1
        if n % 2 == 0:
            cosine += sign * term
        else:
            sine += sign * term
        n += 1
        term = term * x / n
    return cosine, sine


def pi():
    """Machin: 16 arctan(1/5) − 4 arctan(1/239)."""

    def arctan_of_one_over(n):
        return sum(Decimal((-1) ** k) / ((2 * k + 1) * Decimal(n) ** (2 * k + 1)) for k in range(40))

    return 16 * arctan_of_one_over(5) - 4 * arctan_of_one_over(239)


def clamp(x, least, most):
    return min(max(x, least), most)


def turns_per_position(family, pair):
    """Radian, and the factor by which the turned vector grows."""
    plain = THETA ** (-Decimal(pair) / 2)
    if family == "qwen3":
        return plain, Decimal(1)
    if family == "llama":
        kept = (ORIGINAL * plain / (2 * pi()) - 1) / (4 - 1)
        growth = Decimal(1)
    else:
        start, end = (
            HEAD_DIM * (ORIGINAL / (b * 2 * pi())).ln() / (2 * THETA.ln()) for b in (Decimal(2), Decimal("0.2"))
        )
        assert 0 < start < 1 < end < HEAD_DIM - 1
        kept = 1 - (pair - start) / (end - start)
        growth = FACTOR.ln() / 10 + 1
    kept = clamp(kept, Decimal(0), Decimal(1))
    return kept * plain + (1 - kept) * plain / FACTOR, growth


def linear_sizes(family):
    sizes = {
        "self_attn.q_proj": (8, 3),
        "self_attn.k_proj": (4, 3),
        "self_attn.v_proj": (4, 3),
        "self_attn.o_proj": (3, 8),
    }
    if family != "gpt_oss":
        sizes |= {"mlp.gate_proj": (2, 3), "mlp.up_proj": (2, 3), "mlp.down_proj": (3, 2)}
    return sizes


def names_of_tensors(family):
    names = ["model.embed_tokens.weight", "lm_head.weight", "model.norm.weight"]
    for layer in range(len(WINDOWS[family])):
        parts = ["input_layernorm.weight", "post_attention_layernorm.weight"]
        parts += [f"{module}.weight" for module in linear_sizes(family)]
        if family == "qwen3":
            parts += ["self_attn.q_norm.weight", "self_attn.k_norm.weight"]
        if family == "gpt_oss":
            parts += [f"{module}.bias" for module in linear_sizes(family)]
            parts += ["self_attn.sinks", "mlp.router.weight", "mlp.router.bias"]
            parts += [f"mlp.experts.{part}{end}" for part in ("gate_up_proj", "down_proj") for end in ("", "_bias")]
        names += [f"model.layers.{layer}.{part}" for part in parts]
    return sorted(names)


def names_of_adapted(family):
    names = ["model.embed_tokens", "lm_head"]
    for layer in range(len(WINDOWS[family])):
        names += [f"model.layers.{layer}.{module}" for module in linear_sizes(family)]
        if family == "gpt_oss":
            for expert, part in itertools.product(range(EXPERTS), ("gate_proj", "up_proj", "down_proj")):
                names.append(f"model.layers.{layer}.mlp.experts.{expert}.{part}")
    return sorted(names)


class Model:
    def __init__(self, family, adapted):
        self.family = family
        self.shift = {name: place for place, name in enumerate(names_of_tensors(family))}
        self.adapted = {name: place for place, name in enumerate(names_of_adapted(family))} if adapted else {}

    def entry(self, name, i, j, part=0):
        return fraction(i, j, self.shift[name] + part)

    def linear(self, module, x, outputs):
        y = [sum(self.entry(f"{module}.weight", i, j) * x[j] for j in range(len(x))) for i in range(outputs)]
        if f"{module}.bias" in self.shift:
            y = [y[i] + self.entry(f"{module}.bias", 0, i) for i in range(outputs)]
        return [a + b for a, b in zip(y, self.low_rank(module, x, outputs), strict=True)]

    def low_rank(self, module, x, outputs):
        if module not in self.adapted:
            return [Decimal(0)] * outputs
        shift = self.adapted[module]
        inner = sum(fraction(0, j, shift) * x[j] for j in range(len(x)))
        return [SCALING * fraction(i, 0, shift + 1) * inner for i in range(outputs)]

    def norm(self, module, x):
        mean_square = sum(v * v for v in x) / len(x)
        return [
            (1 + self.entry(f"{module}.weight", 0, j) / 8) * v / (mean_square + EPSILON).sqrt() for j, v in enumerate(x)
        ]

    def rotate(self, x, position):
        turned = list(x)
        for i in (0, 1):
            angle, growth = turns_per_position(self.family, i)
            cosine, sine = cosine_and_sine(position * angle)
            turned[i] = growth * (x[i] * cosine - x[i + 2] * sine)
            turned[i + 2] = growth * (x[i + 2] * cosine + x[i] * sine)
        return turned

    def embed(self, token):
        one_hot = [Decimal(int(i == token)) for i in range(VOCABULARY)]
        row = [self.entry("model.embed_tokens.weight", token, j) for j in range(HIDDEN)]
        return [a + b for a, b in zip(row, self.low_rank("model.embed_tokens", one_hot, HIDDEN), strict=True)]

    def attention(self, layer, xs, window):
        module = f"{layer}.self_attn"
        queries, keys, values = [], [], []
        for position, x in enumerate(xs):
            q = self.linear(f"{module}.q_proj", x, HEADS * HEAD_DIM)
            heads = [q[:4], q[4:]]
            k = self.linear(f"{module}.k_proj", x, HEAD_DIM)
            if self.family == "qwen3":
                heads, k = [self.norm(f"{module}.q_norm", h) for h in heads], self.norm(f"{module}.k_norm", k)
            queries.append([self.rotate(head, position) for head in heads])
            keys.append(self.rotate(k, position))
            values.append(self.linear(f"{module}.v_proj", x, HEAD_DIM))
        out = []
        for position in range(len(xs)):
            mixed = []
            for head in range(HEADS):
                seen = range(max(0, position - window + 1) if window else 0, position + 1)
                scores = [sum(a * b for a, b in zip(queries[position][head], keys[t], strict=True)) / 2 for t in seen]
                raised = [score.exp() for score in scores]
                total = sum(raised)
                if self.family == "gpt_oss":
                    total += self.entry(f"{module}.sinks", 0, head).exp()
                mixed += [
                    sum(r * values[t][d] for r, t in zip(raised, seen, strict=True)) / total for d in range(HEAD_DIM)
                ]
            out.append(self.linear(f"{module}.o_proj", mixed, HIDDEN))
        return out

    def mlp(self, layer, x):
        module = f"{layer}.mlp"
        if self.family == "gpt_oss":
            return self.experts(module, x)
        gate, up = (
            self.linear(f"{module}.gate_proj", x, INTERMEDIATE),
            self.linear(f"{module}.up_proj", x, INTERMEDIATE),
        )
        return self.linear(
            f"{module}.down_proj", [g / (1 + (-g).exp()) * u for g, u in zip(gate, up, strict=True)], HIDDEN
        )

    def experts(self, module, x):
        logits = self.linear(f"{module}.router", x, EXPERTS)
        first, second, third = sorted(range(EXPERTS), key=lambda e: -logits[e])
        assert logits[second] - logits[third] > Decimal("0.001"), "the router sits on a tie"
        share = 1 / (1 + (logits[second] - logits[first]).exp())
        parts = [(share, self.expert(module, first, x)), (1 - share, self.expert(module, second, x))]
        return [sum(weight * out[j] for weight, out in parts) for j in range(HIDDEN)]

    def expert(self, module, e, x):
        both, down, own = f"{module}.experts.gate_up_proj", f"{module}.experts.down_proj", f"{module}.experts.{e}"
        inner = []
        gates = self.low_rank(f"{own}.gate_proj", x, INTERMEDIATE)
        ups = self.low_rank(f"{own}.up_proj", x, INTERMEDIATE)
        for i in range(INTERMEDIATE):
            gate, up = (
                sum(x[j] * self.entry(both, j, column, e) for j in range(HIDDEN))
                + self.entry(f"{both}_bias", e, column)
                for column in (2 * i, 2 * i + 1)
            )
            gate, up = min(gate + gates[i], LIMIT), clamp(up + ups[i], -LIMIT, LIMIT)
            inner.append((up + 1) * gate / (1 + (-ALPHA * gate).exp()))
        added = self.low_rank(f"{own}.down_proj", inner, HIDDEN)
        return [
            sum(inner[i] * self.entry(down, i, j, e) for i in range(INTERMEDIATE))
            + self.entry(f"{down}_bias", e, j)
            + added[j]
            for j in range(HIDDEN)
        ]


def fraction(i, j, shift):
    return Decimal((3 * i + 5 * j + 2 * i * j + shift) % 11 - 5) / 4


def derive(family, adapted):
    model = Model(family, adapted)
    hidden = [model.embed(token) for token in TOKENS]
    for number, window in enumerate(WINDOWS[family]):
        layer = f"model.layers.{number}"
        attended = model.attention(layer, [model.norm(f"{layer}.input_layernorm", x) for x in hidden], window)
        hidden = [[a + b for a, b in zip(x, y, strict=True)] for x, y in zip(hidden, attended, strict=True)]
        inner = [model.mlp(layer, model.norm(f"{layer}.post_attention_layernorm", x)) for x in hidden]
        hidden = [[a + b for a, b in zip(x, y, strict=True)] for x, y in zip(hidden, inner, strict=True)]
    logprobs = []
    for x, token in zip(hidden, TOKENS[1:], strict=False):
        logits = model.linear("lm_head", model.norm("model.norm", x), VOCABULARY)
        logprobs.append(logits[token] - sum(logit.exp() for logit in logits).ln())
    return logprobs


if __name__ == "__main__":
    for family, adapted in itertools.product(FAMILIES, (False, True)):
        print(family, "adapted" if adapted else "base", *(f"{value:.20f}," for value in derive(family, adapted)))
