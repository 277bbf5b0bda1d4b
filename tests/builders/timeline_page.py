"""A minimal page around the timeline, as strict as the report's: CSP by hash, no request."""

from __future__ import annotations

import base64
import hashlib

from traceview_reports.html.timeline_data import TimelineSection


def page(section: TimelineSection, theme: str = "light", above: str = "") -> str:
    """HTML text."""
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in section.scripts
    )
    csp = f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; base-uri 'none'"
    scripts = "".join(f"<script>{s}</script>" for s in section.scripts)
    return (
        f'<!doctype html><html lang="en" data-theme="{theme}"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{csp}"><title>timeline</title>'
        f"<style>{section.styles} body{{margin:0 24px 40px;font-family:system-ui;background:var(--bg)}}</style>"
        "</head>"
        f'<body data-ready="1"><main>{above}<section id="timeline"><h2>Timeline</h2>{section.html}</section></main>'
        f"{section.data}{scripts}</body></html>"
    )
