"""Derives the oracle's known answers one scalar at a time in 40-digit decimal arithmetic; shares no code with kit.

Prints what `kit.oracles.canary` records. The sine and cosine are Taylor series, so nothing but `decimal` is used.
"""

from decimal import Decimal, getcontext

getcontext().prec = 40

VOCABULARY, HIDDEN, HEADS, KV_HEADS, HEAD_DIM, INTERMEDIATE = 5, 3, 2, 1, 4, 2
TOKENS = (3, 0, 4, 1)
EPSILON, THETA, SCALING = Decimal("1e-6"), Decimal(100), Decimal("1.625")
MODULES = ("q", "k", "v", "o", "gate", "up", "down")


def entry(i, j, shift):
    return Decimal((3 * i + 5 * j + 2 * i * j + shift) % 11 - 5) / 4


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


def rms_norm(x, weights):
    mean_square = sum(v * v for v in x) / len(x)
    return [Decimal(w) * v / (mean_square + EPSILON).sqrt() for v, w in zip(x, weights, strict=True)]


def linear(module, x, outputs, adapted):
    shift = 3 + MODULES.index(module)
    y = [sum(entry(i, j, shift) * x[j] for j in range(len(x))) for i in range(outputs)]
    if adapted:
        inner = sum(entry(0, j, shift + 1) * x[j] for j in range(len(x)))
        y = [y[i] + SCALING * entry(i, 0, shift + 2) * inner for i in range(outputs)]
    return y


def rotate(x, position):
    half = HEAD_DIM // 2
    turned = list(x)
    for i in range(half):
        angle = Decimal(position) / THETA ** (Decimal(i) / half)
        cosine, sine = cosine_and_sine(angle)
        turned[i] = x[i] * cosine - x[i + half] * sine
        turned[i + half] = x[i + half] * cosine + x[i] * sine
    return turned


def derive(adapted):
    hidden = [[entry(token, j, 1) for j in range(HIDDEN)] for token in TOKENS]
    queries, keys, values = [], [], []
    for position, x in enumerate(hidden):
        x = rms_norm(x, ("0.75", "1.25", "1.0"))
        q = linear("q", x, HEADS * HEAD_DIM, adapted)
        split = [q[h * HEAD_DIM : (h + 1) * HEAD_DIM] for h in range(HEADS)]
        queries.append([rotate(rms_norm(head, ("1.0", "1.25", "0.75", "1.5")), position) for head in split])
        k = linear("k", x, HEAD_DIM, adapted)
        keys.append(rotate(rms_norm(k, ("1.25", "0.75", "1.5", "1.0")), position))
        values.append(linear("v", x, HEAD_DIM, adapted))
    logprobs = []
    for position in range(len(TOKENS) - 1):
        mixed = []
        for head in range(HEADS):
            seen = range(position + 1)
            scores = [sum(a * b for a, b in zip(queries[position][head], keys[t], strict=True)) / 2 for t in seen]
            weights = [score.exp() for score in scores]
            mixed += [sum(weights[t] * values[t][d] for t in seen) / sum(weights) for d in range(HEAD_DIM)]
        x = [a + b for a, b in zip(hidden[position], linear("o", mixed, HIDDEN, adapted), strict=True)]
        y = rms_norm(x, ("1.25", "1.0", "0.75"))
        gate, up = linear("gate", y, INTERMEDIATE, adapted), linear("up", y, INTERMEDIATE, adapted)
        inner = [g / (1 + (-g).exp()) * u for g, u in zip(gate, up, strict=True)]
        x = [a + b for a, b in zip(x, linear("down", inner, HIDDEN, adapted), strict=True)]
        final = rms_norm(x, ("1.0", "0.75", "1.25"))
        logits = [sum(entry(i, j, 2) * final[j] for j in range(HIDDEN)) for i in range(VOCABULARY)]
        logprobs.append(logits[TOKENS[position + 1]] - sum(logit.exp() for logit in logits).ln())
    return logprobs


if __name__ == "__main__":
    for adapted in (False, True):
        print(adapted, [f"{value:.20f}" for value in derive(adapted)])
