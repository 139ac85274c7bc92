"""A check's result for the programs that show it: JUnit XML, SARIF 2.1.0 and GitHub annotations."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from collc import __version__
from collc.verify.findings import Finding
from collc.verify.report import FileReport
from collc.verify.rules import RULES

# What XML 1.0 cannot hold at all.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def _relative(path: str) -> str:
    """The path from the current folder, with forward slashes."""
    return Path(os.path.relpath(path)).as_posix()


# --- JUnit ---------------------------------------------------------------------------------------


def junit(reports: Sequence[FileReport], *, strict: bool) -> str:
    """One test case per file; it fails where the check of the file does."""
    from xml.etree import ElementTree

    failures = sum(not report.ok(strict=strict) for report in reports)
    counts: dict[str, Any] = {"tests": str(len(reports)), "failures": str(failures), "errors": "0"}
    root = ElementTree.Element("testsuites", name="collc verify", **counts)
    suite = ElementTree.SubElement(root, "testsuite", name="collc verify", **counts)
    for report in reports:
        case = ElementTree.SubElement(suite, "testcase", name=_clean(_relative(report.path)), classname="collc.verify")
        shown = _clean("\n".join(_line(finding) for finding in report.findings))
        if not report.ok(strict=strict):
            first = next(f for f in report.findings if strict or f.severity == "error")
            failure = ElementTree.SubElement(case, "failure", type=first.rule, message=_clean(first.message))
            failure.text = shown
        elif shown:
            ElementTree.SubElement(case, "system-out").text = shown
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _line(finding: Finding) -> str:
    place = f"line {finding.line}: " if finding.line else ""
    return f"{place}{finding.severity} [{finding.rule}] {finding.message}"


def _clean(text: str) -> str:
    return _NOT_XML.sub("?", text)


# --- SARIF ---------------------------------------------------------------------------------------


def sarif(reports: Sequence[FileReport], *, strict: bool) -> str:
    """One run; every finding a result with its rule, place and a fingerprint that survives moved lines."""
    used = sorted({finding.rule for report in reports for finding in report.findings})
    driver = {
        "name": "collc",
        "version": __version__,
        "semanticVersion": __version__,
        "rules": [_rule(name) for name in used],
    }
    results = [result for report in reports for result in _results(report, used, strict=strict)]
    document = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "columnKind": "utf16CodeUnits", "results": results}],
    }
    return json.dumps(document, indent=2) + "\n"


def _rule(name: str) -> dict[str, Any]:
    rule = RULES[name]
    return {
        "id": name,
        "shortDescription": {"text": f"{rule.meaning}."},
        "fullDescription": {"text": f"{rule.meaning}: {rule.why}."},
        "defaultConfiguration": {"level": rule.severity},
    }


def _results(report: FileReport, used: Sequence[str], *, strict: bool) -> Iterator[dict[str, Any]]:
    path = _relative(report.path)
    seen: dict[str, int] = {}
    for finding in report.findings:
        # Where it is by rank, threadblock and step, not by line, so that edits above do not make it new.
        place = (finding.rule, path, finding.rank, finding.threadblock, finding.step, finding.message)
        mark = hashlib.sha256(json.dumps(place).encode()).hexdigest()[:32]
        seen[mark] = seen.get(mark, 0) + 1
        location: dict[str, Any] = {"artifactLocation": {"uri": quote(os.fsencode(path)), "uriBaseId": "%SRCROOT%"}}
        if finding.line is not None:
            location["region"] = {"startLine": finding.line}
            if finding.column is not None:
                location["region"]["startColumn"] = finding.column
        yield {
            "ruleId": finding.rule,
            "ruleIndex": used.index(finding.rule),
            "level": "error" if strict else finding.severity,
            "message": {"text": finding.message},
            "locations": [{"physicalLocation": location}],
            "partialFingerprints": {"collcFinding/v1": f"{mark}:{seen[mark]}"},
        }


# --- GitHub annotations --------------------------------------------------------------------------


def github(reports: Sequence[FileReport], *, strict: bool) -> Iterator[str]:
    """A line per finding, as GitHub reads them off a job's output and shows them in the file."""
    for report in reports:
        for finding in report.findings:
            properties = {"file": _relative(report.path), "title": f"collc {finding.rule}"}
            if finding.line is not None:
                properties["line"] = str(finding.line)
                if finding.column is not None:
                    properties["col"] = str(finding.column)
            level = "error" if strict else finding.severity
            told = ",".join(f"{key}={_escaped(value, ':,')}" for key, value in properties.items())
            yield f"::{level} {told}::{_escaped(finding.message)}\n"


def _escaped(text: str, more: str = "") -> str:
    """Text in which nothing ends a property or the line."""
    return "".join(f"%{ord(c):02X}" if c in "%\r\n" + more else c for c in text)
