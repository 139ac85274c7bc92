"""A check's result for eyes and as the contract's JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from fractions import Fraction
from typing import Any

from collc.cli import queues
from collc.units import format_bytes, format_rate
from collc.verify.findings import Finding
from collc.verify.report import FileReport, Served

_EXCERPT = 100  # columns of a source line that are shown
_LINKS = 3  # busiest links that are named


def document(reports: Sequence[FileReport], *, strict: bool) -> dict[str, Any]:
    """The contract's JSON document."""
    files = [_file(report, strict=strict) for report in reports]
    return {"files": files, "ok": all(entry["ok"] for entry in files)}


def _file(report: FileReport, *, strict: bool) -> dict[str, Any]:
    return {
        "path": report.path,
        "format": report.format,
        "ok": report.ok(strict=strict),
        "collective": report.collective,
        "ranks": report.ranks,
        "in_place": report.in_place,
        "findings": [asdict(finding) for finding in report.findings],
        "fifo_depth_needed": report.fifo_depth_needed,
        **queues.document(report),
        "algbw_GBps": _number(report.algbw),
        "bound_algbw_GBps": _number(report.bound_algbw),
        "algbw_exact": _exact(report.algbw),
        "bound_exact": _exact(report.bound_algbw),
        "share_of_bound": _number(report.algbw / report.bound_algbw) if report.algbw and report.bound_algbw else None,
        "runtime": report.runtime,
        "runtime_guessed": report.guessed,
        "limits": dict(report.limits),
        "out_of_place": report.out_of_place,
        "min_bytes": report.min_bytes,
        "max_bytes": report.max_bytes,
        "multiple_elements": report.elements,
        "multiple_bytes": report.grain,
        "channels": report.channels,
        "protocol": report.protocol,
        "links": [
            {"from": src, "to": dst, "share_exact": str(load.share), "busy": float(load.busy)}
            for (src, dst), load in report.loads.items()
        ],
        "nics": [
            {
                "nic": vertex,
                "direction": direction,
                "share_exact": str(load.share),
                "connections": load.connections,
            }
            for (vertex, direction), load in report.nics.items()
        ],
        "sizes": [{"bytes": s.nbytes, "served": s.reason is None, "reason": s.reason} for s in report.served],
    }


def _number(value: Fraction | None) -> float | None:
    return None if value is None else float(value)


def _exact(value: Fraction | None) -> str | None:
    return None if value is None else str(value)


def text(report: FileReport, *, strict: bool) -> str:
    """What was found in a file, with the lines it was found in."""
    errors = sum(finding.severity == "error" for finding in report.findings)
    warnings = len(report.findings) - errors
    verdict = "ok" if report.ok(strict=strict) else "wrong"
    counts = [f"{n} {word}{'s' * (n > 1)}" for n, word in ((errors, "error"), (warnings, "warning")) if n]
    lines = [f"{printable(report.path)}: {verdict}{' (' + ', '.join(counts) + ')' if counts else ''}"]
    lines += [f"  {line}" for line in (_summary(report), *_figures(report)) if line]
    source = report.source.splitlines() if any(finding.line for finding in report.findings) else []
    for finding in report.findings:
        lines += _finding(report, finding, source)
    return "\n".join(lines)


def _summary(report: FileReport) -> str:
    """What the file is, in one line."""
    parts = [report.format]
    if report.runtime:
        parts.append(f"read as {report.runtime} would" + _reading(report))
    if report.collective:
        parts.append(f"{report.collective} on {report.ranks} ranks")
    kinds = [word for word, served in (("in place", report.in_place), ("out of place", report.out_of_place)) if served]
    parts.append(" and ".join(kinds))
    if report.min_bytes is not None:
        end = "any size above" if report.max_bytes is None else format_bytes(report.max_bytes)
        parts.append(f"{format_bytes(report.min_bytes)} to {end}")
    if report.fifo_depth_needed is not None:
        parts.append(f"needs queues of depth {report.fifo_depth_needed}")
    return ", ".join(part for part in parts if part)


def _reading(report: FileReport) -> str:
    """What the user should know of how the file was read."""
    limits = ", ".join(f"{key}={value}" for key, value in report.limits.items())
    notes = [note for note in ("guessed; see --runtime" if report.guessed else "", limits) if note]
    return f" ({'; '.join(notes)})" if notes else ""


def _figures(report: FileReport) -> list[str]:
    """Bandwidth, the busiest links, and the sizes asked for."""
    lines = []
    if report.algbw:
        line = f"algbw {format_rate(report.algbw)} GB/s by the load of links"
        if report.bound_algbw:
            share = float(report.algbw / report.bound_algbw)
            line += f"; no schedule exceeds {format_rate(report.bound_algbw)} GB/s ({share:.1%} of it)"
        lines.append(line)
    busiest = sorted(report.loads.items(), key=lambda item: -item[1].busy)[:_LINKS]
    if busiest:
        shown = ", ".join(f"{src} -> {dst} ({float(load.share):.4g})" for (src, dst), load in busiest)
        full = sum(load.busy == 1 for load in report.loads.values())
        lines.append(f"{full} of {len(report.loads)} links in use are the busiest; messages they carry: {shown}")
    if report.nics:
        lines.append(_nics(report))
    lines += queues.lines(report)
    if report.elements or (report.grain or 0) > 1:
        lines.append(_multiples(report))
    return [*lines, *(_served(served) for served in report.served)]


def _nics(report: FileReport) -> str:
    """The NIC that carries most, and the one that the most connections cross."""
    (door, way), most = max(report.nics.items(), key=lambda item: item[1].share)
    (crowded, direction), crowd = max(report.nics.items(), key=lambda item: item[1].connections)
    return (
        f"of {len({vertex for vertex, _ in report.nics})} NICs in use {door} {way} carries most "
        f"({float(most.share):.4g} messages); {crowded} {direction} has most connections ({crowd.connections})"
    )


def _multiples(report: FileReport) -> str:
    """Which messages are served at all; the library's own algorithm runs for the others, silently."""
    if report.elements is None:
        return f"serves messages that are multiples of {report.grain} bytes"
    never = "" if report.elements & (report.elements - 1) == 0 else ", so never a power of two"
    return f"serves messages whose elements are a multiple of {report.elements}{never}"


def _served(served: Served) -> str:
    outcome = f"not served: {served.reason}" if served.reason else "served"
    return f"{format_bytes(served.nbytes)}: {outcome}"


def _finding(report: FileReport, finding: Finding, source: Sequence[bytes]) -> list[str]:
    """A finding, and the line it is about with a mark under the column."""
    place = printable(report.path) + "".join(
        f":{number}" for number in (finding.line, finding.column) if number is not None
    )
    lines = [f"{place}: {finding.severity} [{finding.rule}] {printable(finding.message)}"]
    if finding.line is not None and 0 < finding.line <= len(source):
        line = source[finding.line - 1].decode("utf-8", "replace").replace("\t", " ")
        column = finding.column or len(line) - len(line.lstrip()) + 1
        start = max(0, column - 1 - _EXCERPT // 2) if len(line) > _EXCERPT else 0
        shown = printable(line[start : start + _EXCERPT])
        lines += [f"  {finding.line:>5} | {shown}", f"        | {' ' * (column - 1 - start)}^"]
    return lines


def printable(text: str) -> str:
    """Text that cannot steer a terminal."""
    return "".join(c if c.isprintable() else "?" for c in text)
