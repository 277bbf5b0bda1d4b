"""Size and speed of the report in Chromium, for 512 ranks x 20 steps and 5 million records.

    python benchmarks/report.py [--ranks 512] [--steps 20] [--kernels 161] [--chromium /usr/bin/chromium]

Frames are timed from the change of the view to the second animation frame after it, so two screen refreshes (33 ms)
are the floor; ``empty frame`` is that floor as measured in the same run, when nothing is drawn.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / p) for p in (".", "parsers", "reports", "tests")]

from builders.timeline_world import World, build  # noqa: E402
from traceview_reports import html  # noqa: E402

ARGUMENTS = "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking --disable-sync"
FRAME = """async ([from, to]) => {
  const t = document.getElementById("tv-tl-root").traceview, began = performance.now();
  if (from !== null) t.setView(from, to);
  await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done))));
  return [performance.now() - began, from === null ? 0 : t.draw.ms];
}"""
FIRST_PAINT = "performance.getEntriesByType('paint').find((e) => e.name === 'first-contentful-paint').startTime"


def frames(page: Any, views: list[tuple[float, float] | None]) -> tuple[float, float, float]:
    """Median and largest frame, median of the painting itself, ms."""
    times, paints = zip(*(page.evaluate(FRAME, list(v) if v else [None, None]) for v in views), strict=True)
    return statistics.median(times), max(times), statistics.median(paints)


def say(what: str, value: str, target: str = "") -> None:
    """One line of the result."""
    print(f"{what:<44}{value:>14}  {target}", flush=True)


def measure(path: Path, chromium: str) -> None:
    """Open the page cold and print what a reader waits for."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as p:
        browser = p.chromium.launch(executable_path=chromium, args=ARGUMENTS.split())
        page = browser.new_context(offline=True, viewport={"width": 1400, "height": 900}).new_page()
        page.goto(path.as_uri())
        page.wait_for_selector("body[data-ready-timeline]", state="attached", timeout=60_000)
        ready = page.evaluate("performance.getEntriesByName('traceview-timeline-ready')[0].startTime")
        meta = "document.getElementById('tv-tl-root').traceview.state.meta"
        say("records in the run", f"{page.evaluate(f'{meta}.candidates'):,}")
        say("records in the page", f"{page.evaluate(f'{meta}.embedded'):,}", "default budget: 2,000,000 or 14 MB")
        say("first contentful paint", f"{page.evaluate(FIRST_PAINT):.0f} ms", "< 500 ms")
        say("timeline ready", f"{ready:.0f} ms", "< 2000 ms")
        state = "document.getElementById('tv-tl-root').traceview.state"
        span = page.evaluate(f"{state}.meta.span")
        say("empty frame, median", f"{frames(page, [None] * 10)[0]:.0f} ms")
        cases = {
            "full view": [(-i * 1000.0, span + i * 1000.0) for i in range(12)],
            "one step": [(span * (0.4 + i / 300), span * (0.45 + i / 300)) for i in range(12)],
            "200 µs": [(span * 0.42 + i * 20_000, span * 0.42 + i * 20_000 + 200_000) for i in range(12)],
        }
        for opened in ("ranks closed", "16 ranks open"):
            for name, views in cases.items():
                middle, worst, paint = frames(page, views)
                say(
                    f"frame, {opened}, {name}",
                    f"{middle:.0f} ms",
                    f"<= 50 ms; worst {worst:.0f}, painting {paint:.1f}",
                )
            page.evaluate(
                f"async () => {{ const t = document.getElementById('tv-tl-root').traceview;"
                f" for (const r of {state}.order.slice(0, 16)) await t.openRank(r); }}"
            )
        began = time.perf_counter()
        page.locator("#tv-tl-search").fill("flash")
        page.locator("#tv-tl-hits").get_by_text("events").wait_for(timeout=60_000)
        say("search, decoding all that is embedded", f"{(time.perf_counter() - began) * 1e3:.0f} ms")
        heap = page.evaluate("performance.memory ? performance.memory.usedJSHeapSize : 0")
        say("JavaScript heap after it", f"{heap / 1e6:.0f} MB")
        browser.close()


def main() -> None:
    """Build, write, open, print."""
    options = argparse.ArgumentParser()
    options.add_argument("--ranks", type=int, default=512)
    options.add_argument("--steps", type=int, default=20)
    options.add_argument("--kernels", type=int, default=161)
    options.add_argument("--chromium", default="/usr/bin/chromium")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        world = World(ranks=chosen.ranks, steps=chosen.steps, kernels=chosen.kernels)
        run, result, detail = build(Path(folder), world)
        path = Path(folder) / "report.html"
        began, cpu = time.perf_counter(), time.process_time()
        html.write(path, result, run, detail=detail)
        say("making the page", f"{time.process_time() - cpu:.1f} CPU-s", f"{time.perf_counter() - began:.1f} s")
        say("file", f"{path.stat().st_size / 1e6:.1f} MB", "<= 20 MB")
        say("load of this machine", f"{os.getloadavg()[0]:.1f}", f"on {os.cpu_count()} cores")
        measure(path, chosen.chromium)


if __name__ == "__main__":
    main()
