"""Plots as inline SVG. Places are percentages of the width: a plot fits a phone, and its text keeps its size."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from markupsafe import Markup, escape

from kit.evidence import ErrorByPosition, LimitUseByHead
from kit.results.text import number, printable

_EDGE = 3.0  # per cent of the width on both sides, where a mark still fits
_STRETCHED = 'preserveAspectRatio="none"'
_SPAN = 12  # decades beyond which margins are drawn at the edge


@dataclass(frozen=True)
class LogScale:
    """A logarithmic axis from `low` to `high`; values beyond are drawn at its ends."""

    low: float
    high: float

    @classmethod
    def of_margins(cls, margins: Iterable[float]) -> "LogScale":
        """Holds all margins within 12 decades of the limit, and always some room on both sides of it."""
        inside = [min(max(m, 10.0**-_SPAN), 10.0**_SPAN) for m in margins if not math.isnan(m)]
        low, high = min(inside, default=1.0), max(inside, default=1.0)
        return cls(
            0.5 if low >= 1.0 else 10.0 ** math.floor(math.log10(low)), max(10.0, 10.0 ** math.ceil(math.log10(high)))
        )

    @property
    def decades(self) -> float:
        """Its length."""
        return math.log10(self.high / self.low)

    def fraction(self, value: float) -> float:
        """0 at `low`, 1 at `high`; NaN and 0 are at `low`."""
        if math.isnan(value) or value <= self.low:
            return 0.0
        return 1.0 if value >= self.high else math.log10(value / self.low) / self.decades

    def percent(self, value: float) -> float:
        """Where a value is drawn."""
        return _EDGE + (100 - 2 * _EDGE) * self.fraction(value)

    def ticks(self) -> list[float]:
        """Powers of ten, a few; 2 and 5 too on a short axis."""
        first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
        step = max(1, math.ceil((last - first) / 6))
        ticks = [10.0**power for power in range(first, last + 1) if power % step == 0]
        if self.decades <= 2:
            ticks += [
                f * 10.0**p for p in range(first - 1, last + 1) for f in (2, 5) if self.low <= f * 10.0**p <= self.high
            ]
        return sorted(ticks)


def _svg(height: float, label: str, body: Iterable[str], css: str = "") -> Markup:
    """An SVG as wide as its place; `label` is read aloud instead of it. `body` is markup."""
    return Markup('<svg class="{}" width="100%" height="{}" role="img" aria-label="{}">{}</svg>').format(
        css, f"{height:g}", printable(label), Markup("".join(body))
    )


def _text(x: float, y: float, text: str, anchor: str = "middle", css: str = "") -> str:
    return f'<text x="{x:.2f}%" y="{y:g}" text-anchor="{anchor}" class="{css}">{escape(printable(text))}</text>'


def _vertical(x: float, height: float, css: str, top: float = 0) -> str:
    return f'<line x1="{x:.2f}%" x2="{x:.2f}%" y1="{top:g}" y2="{height:g}" class="{css}"/>'


def _tick(scale: LogScale, tick: float, y: float) -> str:
    """The label of a tick; at the ends it stays inside."""
    x = scale.percent(tick)
    if tick == 1.0:
        return _text(x, y, "limit", css="lim")
    if x < 8:
        return _text(0, y, f"×{number(tick)}", "start")
    return _text(100, y, f"×{number(tick)}", "end") if x > 92 else _text(x, y, f"×{number(tick)}")


def margin_axis(scale: LogScale) -> Markup:
    """The scale above the rows: factors, and where the limit is."""
    body = []
    for tick in scale.ticks():
        body += [_tick(scale, tick, 13), _vertical(scale.percent(tick), 20, "tick", 16)]
    if 1.0 not in scale.ticks():
        body.append(_text(scale.percent(1.0), 13, "limit", css="lim"))
    return _svg(20, f"Axis of margins from ×{number(scale.low)} to ×{number(scale.high)}, logarithmic", body, "axis")


def margin_track(scale: LogScale, margin: float, label: str, css: str) -> Markup:
    """One row: the side beyond the limit shaded, the limit, and the margin as a mark with a line to the limit."""
    limit, x = scale.percent(1.0), scale.percent(margin)
    body = [
        f'<rect x="0" y="0" width="{limit:.2f}%" height="100%" class="beyond"/>',
        _vertical(limit, 18, "limit"),
        f'<line x1="{limit:.2f}%" x2="{x:.2f}%" y1="9" y2="9" class="arm"/>',
    ]
    if margin < 1.0 or math.isnan(margin):
        body.append(f'<svg x="{x:.2f}%" y="9" overflow="visible"><path d="M-5-5L5 5M-5 5L5-5" class="cross"/></svg>')
    else:
        body.append(f'<circle cx="{x:.2f}%" cy="9" r="4.5" class="dot"/>')
    return _svg(18, label, body, f"track {css}")


class _Bin(NamedTuple):
    """Cases whose margins lie between two values."""

    low: float
    high: float
    cases: int


def _bins(scale: LogScale, margins: Sequence[float]) -> list[_Bin]:
    per_decade = max(2, min(8, round(48 / scale.decades)))
    first, last = round(math.log10(scale.low) * per_decade), round(math.log10(scale.high) * per_decade)
    first = min(first, math.floor(math.log10(scale.low) * per_decade))
    counts = [0] * (last - first)
    for margin in margins:
        inside = 10.0**-300 if math.isnan(margin) or margin <= 0 else min(margin, scale.high)
        counts[min(max(math.floor(math.log10(inside) * per_decade + 1e-9) - first, 0), len(counts) - 1)] += 1
    return [
        _Bin(10 ** ((first + i) / per_decade), 10 ** ((first + i + 1) / per_decade), n) for i, n in enumerate(counts)
    ]


def margin_histogram(scale: LogScale, margins: Sequence[float]) -> Markup:
    """How many cases have which margin; heights are logarithms of counts, so that one case among many is seen."""
    height, base = 120.0, 100.0
    bins = _bins(scale, margins)
    most = max((b.cases for b in bins), default=0)
    limit = scale.percent(1.0)
    body = [f'<rect x="0" y="0" width="{limit:.2f}%" height="{base:g}" class="beyond"/>']
    for low, high, count in bins:
        if count:
            tall = 6 + (base - 26) * math.log1p(count) / math.log1p(most)
            x, right = scale.percent(low), scale.percent(high)
            css = "out" if high <= 1.0 + 1e-9 else "in"
            title = f"<title>{count:,} cases between ×{number(low)} and ×{number(high)}</title>"
            size = f'width="{max(right - x - 0.15, 0.4):.2f}%" height="{tall:.1f}"'
            body.append(f'<rect x="{x:.2f}%" y="{base - tall:.1f}" {size} class="bar {css}">{title}</rect>')
            if count == most or high <= 1.0 + 1e-9:
                body.append(_text((x + right) / 2, base - tall - 3, f"{count:,}", css="small"))
    body += [_vertical(limit, base, "limit"), f'<line x1="0" x2="100%" y1="{base:g}" y2="{base:g}" class="tick"/>']
    body += [_tick(scale, tick, 115) for tick in scale.ticks()]
    outside = sum(not margin >= 1.0 for margin in margins)
    counts = f"{outside:,} outside their limit, {len(margins) - outside:,} inside"
    label = f"Histogram of the margins of {len(margins):,} cases: {counts}"
    return _svg(height, label, body, "histogram")


def _path(values: Sequence[float], place: LogScale) -> str:
    """A line through finite values, in a box of len(values) × 1000; broken where one is NaN."""
    steps, pen = [], "M"
    for index, value in enumerate(values):
        if math.isnan(value):
            pen = "M"
            continue
        steps.append(f"{pen}{index} {1000 - 1000 * place.fraction(value):.0f}")
        pen = "L"
    return "".join(steps)


def _specks(indices: Sequence[int], heights: Sequence[float]) -> str:
    return "".join(f"M{index} {height:.0f}h0" for index, height in zip(indices, heights, strict=True))


def error_by_position(plot: ErrorByPosition) -> Markup:
    """Errors along the prompts on a log scale: the subject's, the peer's, and the limit of the largest."""
    finite = [min(max(v, 1e-290), 1e290) for v in (*plot.served, *plot.peer, plot.limit) if math.isfinite(v) and v > 0]
    low, high = min(finite, default=1e-9), max(finite, default=1.0)
    low = max(low, high * 1e-9)
    scale = LogScale(10.0 ** math.floor(math.log10(low)), 10.0 ** math.ceil(math.log10(high) + 1e-9))
    if scale.low == scale.high:
        scale = LogScale(scale.low, scale.low * 10)
    height, count = 190, max(len(plot.served) - 1, 1)

    def y(value: float) -> float:
        return 10 + 160 * (1 - scale.fraction(value))

    outside = [i for i, value in enumerate(plot.served) if not value <= plot.limit]
    specks = _specks(
        outside,
        [1000 - 1000 * scale.fraction(plot.served[i]) if plot.served[i] == plot.served[i] else 0 for i in outside],
    )
    inner = [
        f'<path d="{_path(plot.peer, scale)}" class="peer"/>',
        f'<path d="{_path(plot.served, scale)}" class="served"/>',
        f'<path d="{specks}" class="specks"/>' if specks else "",
    ]
    body = []
    for tick in scale.ticks():
        body += [
            f'<line x1="0" x2="100%" y1="{y(tick):.1f}" y2="{y(tick):.1f}" class="grid"/>',
            _text(0, y(tick) - 2, number(tick), "start", "small"),
        ]
    body += [_vertical(100 * (start // plot.window) / count, 170, "grid", 10) for start in plot.starts[1:]]
    body += [
        _text(100 * (start // plot.window) / count, 184, f"prompt {n}", "start", "small wide")
        for n, start in enumerate(plot.starts)
    ]
    body.append(
        f'<svg x="0" y="10" width="100%" height="160" viewBox="0 0 {count} 1000" {_STRETCHED} overflow="visible">'
        f"{''.join(inner)}</svg>"
    )
    body += [
        f'<line x1="0" x2="100%" y1="{y(plot.limit):.1f}" y2="{y(plot.limit):.1f}" class="limit"/>',
        _text(100, y(plot.limit) - 3, f"limit {number(plot.limit)} {plot.unit}", "end", "lim"),
    ]
    return _svg(height, f"Absolute error by position. {positions_caption(plot)}", body, "positions")


def positions_caption(plot: ErrorByPosition) -> str:
    """From which position on the errors are outside, and how many are."""
    outside = [i for i, value in enumerate(plot.served) if not value <= plot.limit]
    what = "positions" if plot.window == 1 else f"windows of {plot.window} positions (each told by its largest error)"
    if not outside:
        return f"All {len(plot.served)} {what} are within the limit of the largest error."
    position = outside[0] * plot.window
    prompt = max(n for n, start in enumerate(plot.starts) if start <= position)
    place = f"prompt {prompt}, position {position - plot.starts[prompt] + 1}"
    return (
        f"{len(outside)} of {len(plot.served)} {what} are outside the limit of the largest error, the first at {place}."
    )


_USES = ((0.25, "≤ ¼"), (0.5, "≤ ½"), (1.0, "≤ 1"), (2.0, "≤ 2"), (10.0, "≤ 10"), (math.inf, "> 10"))
HEAD_LEGEND = (*((f"k{n}", label) for n, (_, label) in enumerate(_USES)), ("kn", "NaN"))


def _use_class(use: float) -> str:
    return "kn" if math.isnan(use) else next(f"k{n}" for n, (most, _) in enumerate(_USES) if use <= most)


def limit_use_by_head(plot: LimitUseByHead) -> Markup:
    """A map of all heads, one row a request, by how much of its limit each uses."""
    width, rows = max(len(row) for row in plot.use), len(plot.use)
    cells: dict[str, list[str]] = {}
    for y, row in enumerate(plot.use):
        for x, use in enumerate(row):
            cells.setdefault(_use_class(use), []).append(f"M{x} {y}h1v1h-1z")
    body = [f'<path d="{"".join(places)}" class="{css}"/>' for css, places in sorted(cells.items())]
    inner = (
        f'<svg width="100%" height="100%" viewBox="0 0 {width} {rows}" {_STRETCHED} shape-rendering="crispEdges">'
        f"{''.join(body)}</svg>"
    )
    return _svg(rows * max(8, min(22, 160 // rows)), f"Map of heads. {heads_caption(plot)}", [inner], "heads")


def heads_caption(plot: LimitUseByHead) -> str:
    """Which heads are outside."""
    what = "heads" if plot.window == 1 else f"groups of {plot.window} heads (each told by its worst)"
    total = sum(len(row) for row in plot.use)
    outside = [(request, n) for request, row in enumerate(plot.use) for n, use in enumerate(row) if not use <= 1.0]
    size = f"{len(plot.use)} requests × {max(len(row) for row in plot.use)} {what}"
    if not outside:
        return f"{size}: all within their limits."
    first = ", ".join(f"request {request} head {n * plot.window}" for request, n in outside[:8])
    return f"{size}: {len(outside)} of {total} outside, at {first}{', …' if len(outside) > 8 else ''}."


def timing_bar(start: float, cases: float, longest: float) -> Markup:
    """Two parts of a session's time, against the longest session."""
    full = longest or 1.0
    left, right = 100 * start / full, 100 * cases / full
    body = [
        f'<rect x="0" y="3" width="{left:.2f}%" height="12" class="start"/>',
        f'<rect x="{left:.2f}%" y="3" width="{right:.2f}%" height="12" class="work"/>',
    ]
    return _svg(18, f"{number(start)} s to start, {number(cases)} s of cases", body, "timing")
