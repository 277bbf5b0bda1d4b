"""A secret planted in the environment of real exports reaches nothing that the product writes or prints."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SECRET = b"planted-secret-must-not-leak"
ROOT = Path(__file__).resolve().parents[2]


def run(tmp_path: Path, *arguments: str) -> bytes:
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(str(ROOT / p) for p in (".", "parsers", "reports")),
        "TRACEVIEW_CACHE": str(tmp_path / "cache"),
        "XDG_CACHE_HOME": str(tmp_path / "xdg"),
    }
    done = subprocess.run(
        [sys.executable, "-m", "traceview", *arguments],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout + done.stderr


def test_the_secret_stays_in_the_input(shared_dir: Path, tmp_path: Path) -> None:
    path = shared_dir / "traces/nsight/h100x8_fuser_report.sqlite"
    assert SECRET in path.read_bytes()
    outputs = ["-o", "r.html", "--no-charts", "--json", "r.json", "--markdown", "r.md", "--tables", "tables", "-v"]
    said = run(tmp_path, "analyze", str(path), *outputs)
    written = [p for p in tmp_path.rglob("*") if p.is_file()]
    assert {"r.html", "r.json", "r.md", "part.json"} <= {p.name for p in written}
    for text in (said, *(p.read_bytes() for p in written)):
        assert SECRET not in text and b"AWS_SECRET" not in text
