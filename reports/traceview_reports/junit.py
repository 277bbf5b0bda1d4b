"""JUnit XML of a gate, so that a CI server shows it as a test."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from traceview.result.versus import Comparison, Decision
from traceview_reports import versus
from traceview_reports.names import clean

_NAME = "traceview gate"


def render(c: Comparison, d: Decision, *, allow_inconclusive: bool = False) -> bytes:
    """One test case: a failure if the gate fails, skipped or (unless allowed) an error if it cannot tell."""
    kind = {"FAIL": "failure", "INCONCLUSIVE": "skipped" if allow_inconclusive else "error"}.get(d.outcome, "")
    text = versus.render(c, d, width=120)
    return _suite(kind, d.outcome, d.reason, f"{c.candidate_step_ns / 1e9:.9f}", text)


def failed(reason: str) -> bytes:
    """The test case of a gate without a verdict: an error with its reason."""
    return _suite("error", "NO VERDICT", clean(reason, 2000), "0", "")


def is_ours(path: str) -> bool:
    """Whether a file is JUnit XML of a gate."""
    try:
        with open(path, "rb") as file:
            return f'name="{_NAME}"'.encode() in file.read(500)
    except OSError:
        return False


def _suite(kind: str, outcome: str, reason: str, seconds: str, text: str) -> bytes:
    """``kind``: '' = passed | failure | error | skipped."""
    keys = {"failure": "failures", "error": "errors", "skipped": "skipped"}
    counts = {plural: str(int(key == kind)) for key, plural in keys.items()}
    suites = ET.Element("testsuites", {"tests": "1", **counts})
    suite = ET.SubElement(suites, "testsuite", {"name": _NAME, "tests": "1", **counts})
    case = ET.SubElement(suite, "testcase", {"classname": "traceview", "name": "step time", "time": seconds})
    if kind:
        ET.SubElement(case, kind, {"message": reason, "type": outcome})
    if text:
        ET.SubElement(case, "system-out").text = text
    out: bytes = ET.tostring(suites, encoding="utf-8", xml_declaration=True)
    return out + b"\n"
