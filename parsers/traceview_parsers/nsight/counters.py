"""GPU and NIC metric samples of a report as counters.

Metric ids differ between files, so names are joined by (type, metric). GPU metrics are mostly percent of a peak, as
their names say; NIC metrics count bytes or packets since the sample before.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from traceview.schema import COUNTERS
from traceview_parsers.nsight.gpu import Tick
from traceview_parsers.nsight.names import clean
from traceview_parsers.nsight.source import Kind, Source
from traceview_parsers.nsight.spill import SortedSpill
from traceview_parsers.nsight.times import DROPPED, Times

GPU_METRICS = "GPU_METRICS"
NIC_METRICS = "NET_NIC_METRIC"
TABLES = (GPU_METRICS, NIC_METRICS)
_UNIT = re.compile(r"\s*\[(?:Throughput )?([^\]]*)\]\s*$")
_ROW = np.dtype([("start", "i8"), ("end", "i8"), ("value", "f8")])
Key = tuple[str, int, str]
"""(counter name, GPU id or -1 for the host, unit)"""
Metric = tuple[int | None, ...]
"""(type or list of metrics, number in it[, NIC])"""


class CounterReader:
    """Reads the samples of a report; ``table`` gives those of one process."""

    def __init__(self, source: Source, folder: Path, times: Times) -> None:
        self._source = source
        self._times = times
        self.lost = 0
        """samples without a usable time, left out"""
        self._gpu = self._gpu_keys()
        self._nic = self._nic_keys()
        self._keys: list[Key] = sorted({*self._gpu.values(), *self._nic.values()})
        self._spill = SortedSpill(folder / "counters", _ROW) if self._keys else None

    def _gpu_keys(self) -> dict[Metric, Key]:
        keys: dict[Metric, Key] = {}
        for kind, metric, text in self._source.rows("TARGET_INFO_GPU_METRICS", ("typeId", "metricId", "metricName")):
            if isinstance(kind, int) and isinstance(metric, int):
                name, unit = _split_unit(str(text))
                keys[kind, metric] = (f"gpu.{name}", kind & 0xFF, unit)
        return keys

    def _nic_keys(self) -> dict[Metric, Key]:
        """Per metric and NIC; with None as the NIC for samples of one without a name."""
        names = dict(self._source.rows("TARGET_INFO_NIC_INFO", ("nicId", "name")))
        nics = {where: names.get(nic) for nic, where in self._source.rows("NIC_ID_MAP", ("nicId", "globalId"))}
        keys: dict[Metric, Key] = {}
        for a, b, text, unit in self._source.rows(
            "TARGET_INFO_NETWORK_METRICS", ("metricsListId", "metricsIdx", "name", "unit")
        ):
            for where, nic in {**nics, None: None}.items():
                name = f"nic.{nic}.{text}" if nic else f"nic.{text}"
                keys[a, b, where] = (clean(name), -1, str(unit or ""))
        return keys

    def read(self, tick: Tick) -> None:
        """All samples."""
        if self._spill is None:
            return
        wanted = dict.fromkeys(("timestamp", "typeId", "metricId"), Kind.INT) | {"value": Kind.FLOAT}
        for columns in self._source.batches(GPU_METRICS, wanted):
            group = self._groups([columns["typeId"], columns["metricId"]], self._gpu)
            self._add(group, columns["timestamp"], columns["value"], tick)
        place = ("metricsListId", "metricsIdx", "globalId")
        wanted = dict.fromkeys(("start", "end", *place), Kind.INT) | {"value": Kind.FLOAT}
        for columns in self._source.batches(NIC_METRICS, wanted):
            group = self._groups([columns[c] for c in place], self._nic)
            self._add(group, np.maximum(columns["start"], columns["end"]), columns["value"], tick)

    def _groups(self, ids: list[Any], keys: dict[Metric, Key]) -> Any:
        """The place of each sample's counter in the sorted list, -1 for one without a name."""
        encoded = [pa.array(i).dictionary_encode() for i in ids]
        combined = np.zeros(len(ids[0]), np.int64)
        for e in encoded:
            combined = combined * len(e.dictionary) + e.indices.to_numpy()
        _, first, inverse = np.unique(combined, return_index=True, return_inverse=True)
        place = {key: i for i, key in enumerate(self._keys)}
        found = []
        for row in first.tolist():
            own = tuple(int(i[row]) for i in ids)
            key = keys.get(own) or keys.get((*own[:-1], None))
            found.append(-1 if key is None else place[key])
        return np.array(found, np.int64)[inverse]

    def _add(self, group: Any, time: Any, value: Any, tick: Tick) -> None:
        _, verdict, _ = self._times.judge(time, time)
        lost = verdict >= DROPPED
        self.lost += int(lost.sum())
        keep = (group >= 0) & ~lost
        rows = np.empty(int(keep.sum()), _ROW)
        rows["start"] = rows["end"] = time[keep]
        rows["value"] = value[keep]
        if self._spill is not None:
            self._spill.append(group[keep], rows)
        tick(len(group))

    @property
    def gpus(self) -> set[int]:
        """GPU ids that have samples."""
        groups = self._spill.groups if self._spill else []
        return {self._keys[g][1] for g in groups} - {-1}

    def table(self, devices: dict[int, int], host: bool, epoch: int) -> Iterator[Any]:
        """Samples of these GPUs (GPU id -> device ordinal of the process), and of the host's NICs if ``host``."""
        names = pa.array([k[0] for k in self._keys], pa.string())
        units = pa.array([k[2] for k in self._keys], pa.string())
        device = np.array([-1 if k[1] < 0 else devices.get(k[1], -2) for k in self._keys], np.int32)
        for group, batch in self._spill.batches() if self._spill else ():
            keep = device[group] >= (-1 if host else 0)
            group, batch = group[keep].astype(np.int32), batch[keep]
            yield COUNTERS.build(
                {
                    "name": pa.DictionaryArray.from_arrays(group, names),
                    "device": device[group],
                    "time": batch["start"] + epoch,
                    "value": batch["value"],
                    "unit": pa.DictionaryArray.from_arrays(group, units),
                },
                stored=True,
            )


def _split_unit(text: str) -> tuple[str, str]:
    """'PCIe RX Throughput [Throughput %]' -> ('PCIe RX Throughput', '%')."""
    text = clean(text)
    found = _UNIT.search(text)
    return (text[: found.start()], found.group(1)) if found else (text, "")
