"""What a run shows: a table for the terminal, and a page with the timeline."""

from __future__ import annotations

from collections import Counter
from html import escape
from typing import Final

from tests.chaos.injector import Incident
from tests.chaos.load import VIOLATIONS, End
from tests.chaos.run import Result
from tests.chaos.schedule import Kind

WIDTH: Final = 1200
LABEL: Final = 210
ROW: Final = 22
CHART: Final = 160
COLOURS: Final = {End.ANSWERED: "#2e8b57", End.HUNG_UP: "#8ab4d8", End.ERROR: "#e0a030"}
NEEDS: Final = {
    Kind.DISK_FULL: "no permission to mount a bounded store",
    Kind.CLOCK_SKEW: "no libfaketime for this machine",
}
BAD: Final = "#c02020"
_STYLE: Final = "body{font:14px sans-serif;margin:2em}pre{background:#f4f4f4;padding:1em;overflow:auto}"


def table(result: Result) -> str:
    """Faults by kind with their worst recovery, requests by end, what the workers hold, and problems."""
    incidents = result.injector.incidents
    lines = [f"{'fault':<32}{'injected':>9}{'median s':>10}{'worst s':>10}"]
    lines += [_fault_line(label, found) for label, found in sorted(_by_label(incidents).items())]
    lines += [_fault_line("all", incidents)] if incidents else []
    lines += [f"{kind}: skipped, {NEEDS[kind]}" for kind in sorted(result.injector.skipped)]
    if result.injector.missed:
        lines.append(f"{len(result.injector.missed)} crashes found nobody to hit")
    lines += ["", f"{'requests':<32}{len(result.load.outcomes):>9}   in {result.ended - result.began:.1f} s"]
    lines += [f"  {end:<30}{count:>9}" for end, count in sorted(result.load.ends.items())]
    lines += [f"  errors by code: {_error_codes(result)}", f"  {'tokens answered':<30}{result.load.tokens:>9}", ""]
    lines += [f"worker {number}: {leak}" for number, leak in enumerate(result.leaks)]
    verdict = [f"PROBLEM {problem}" for problem in result.problems] or ["no problem"]
    return "\n".join([*lines, "", *verdict])


def page(result: Result) -> str:
    """A self-contained page: when which fault stood, and how requests ended, second by second."""
    kinds = [kind for kind in Kind if any(incident.fault.kind is kind for incident in result.injector.incidents)]
    height = ROW * len(kinds) + CHART + 2 * ROW
    bars = "".join(_bar(result, incident, kinds.index(incident.fault.kind)) for incident in result.injector.incidents)
    names = "".join(f'<text x="4" y="{ROW * row + 15}">{escape(kind)}</text>' for row, kind in enumerate(kinds))
    drawing = f"{names}{bars}{_ends(result, ROW * len(kinds) + ROW)}{_axis(result, height - 4)}"
    picture = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}">{drawing}</svg>'
    legend = " ".join(f'<span style="color:{colour}">&#9632; {end}</span>' for end, colour in COLOURS.items())
    title = f"Chaos, seed {result.plan.seed}, {result.plan.streams} clients"
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style>'
        f"<h1>{title}</h1><p>Dark: the fault stands. Light: not yet whole again. Below: requests ended a second. "
        f"{legend} <span style='color:{BAD}'>&#9632; violation</span></p>{picture}"
        f"<pre>{escape(table(result))}</pre></html>"
    )


def _by_label(incidents: list[Incident]) -> dict[str, list[Incident]]:
    found: dict[str, list[Incident]] = {}
    for incident in incidents:
        fault = incident.fault
        found.setdefault(f"{fault.kind}: {fault.victim}" if fault.victim else fault.kind, []).append(incident)
    return found


def _fault_line(label: str, incidents: list[Incident]) -> str:
    times = sorted(float("inf") if incident.recovery is None else incident.recovery for incident in incidents)
    return f"{label:<32}{len(times):>9}{times[len(times) // 2]:>10.2f}{times[-1]:>10.2f}"


def _error_codes(result: Result) -> str:
    codes = Counter(outcome.detail for outcome in result.load.outcomes if outcome.end is End.ERROR)
    return ", ".join(f"{code}: {count}" for code, count in sorted(codes.items())) or "none"


def _x(result: Result, moment: float) -> float:
    return LABEL + (moment - result.began) / (result.ended - result.began) * (WIDTH - LABEL)


def _bar(result: Result, incident: Incident, row: int) -> str:
    begin, end = _x(result, incident.began), _x(result, incident.ended)
    whole = _x(result, min(result.ended, incident.ended + (incident.recovery or result.ended)))
    title = f"<title>{escape(str(incident.fault))}, recovery {incident.recovery}</title>"
    box = '<rect x="{:.1f}" y="{}" width="{:.1f}" height="16" fill="{}">{}</rect>'
    late = box.format(end, ROW * row + 3, max(0.5, whole - end), "#e8b8a0", title)
    return late + box.format(begin, ROW * row + 3, max(1.5, end - begin), "#903010", title)


def _ends(result: Result, top: int) -> str:
    seconds: dict[int, Counter[str]] = {}
    for outcome in result.load.outcomes:
        colour = BAD if outcome.end in VIOLATIONS else COLOURS[outcome.end]
        seconds.setdefault(int(outcome.ended - result.began), Counter())[colour] += 1
    most = max((sum(found.values()) for found in seconds.values()), default=1)
    width = max(0.5, (WIDTH - LABEL) / (result.ended - result.began))
    shown = f'<text x="4" y="{top + 15}">requests/s, most {most}</text>'
    for second, found in seconds.items():
        floor = float(top + CHART)
        for colour, count in found.items():
            tall = count / most * CHART
            floor -= tall
            x = _x(result, result.began + second)
            shown += f'<rect x="{x:.1f}" y="{floor:.1f}" width="{width:.2f}" height="{tall:.1f}" fill="{colour}"/>'
    return shown


def _axis(result: Result, y: int) -> str:
    length = result.ended - result.began
    moments = [length * tenth / 10 for tenth in range(10)]
    return "".join(f'<text x="{_x(result, result.began + at):.0f}" y="{y}">{at:.0f} s</text>' for at in moments)
