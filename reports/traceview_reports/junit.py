"""JUnit XML of a gate, so that a CI server shows it as a test."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from traceview.result.versus import Comparison, Decision
from traceview_reports import versus


def render(c: Comparison, d: Decision, *, allow_inconclusive: bool = False) -> bytes:
    """One test case: a failure if the gate fails, skipped or (unless allowed) an error if it cannot tell."""
    bad = {"FAIL": "failures", "INCONCLUSIVE": "skipped" if allow_inconclusive else "errors"}.get(d.outcome)
    counts = {key: str(int(key == bad)) for key in ("failures", "errors", "skipped")}
    suites = ET.Element("testsuites", {"tests": "1", **counts})
    suite = ET.SubElement(suites, "testsuite", {"name": "traceview gate", "tests": "1", **counts})
    seconds = f"{c.candidate_step_ns / 1e9:.9f}"
    case = ET.SubElement(suite, "testcase", {"classname": "traceview", "name": "step time", "time": seconds})
    if bad:
        kind = {"failures": "failure", "errors": "error", "skipped": "skipped"}[bad]
        ET.SubElement(case, kind, {"message": d.reason, "type": d.outcome})
    ET.SubElement(case, "system-out").text = versus.render(c, d, width=120)
    out: bytes = ET.tostring(suites, encoding="utf-8", xml_declaration=True)
    return out + b"\n"
