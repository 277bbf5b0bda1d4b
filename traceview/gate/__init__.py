"""The performance gate: PASS, FAIL or INCONCLUSIVE for a candidate against its baseline (METHODS i)."""

from __future__ import annotations

from traceview.gate.rules import Calibration, Decision, Outcome, Side, calibrate, decide

__all__ = ["Calibration", "Decision", "Outcome", "Side", "calibrate", "decide"]
