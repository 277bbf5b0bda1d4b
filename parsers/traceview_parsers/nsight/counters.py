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
from traceview_parsers.nsight.source import NULL, Kind, Source
from traceview_parsers.nsight.spill import SortedSpill

GPU_METRICS = "GPU_METRICS"
NIC_METRICS = "NET_NIC_METRIC"
TABLES = (GPU_METRICS, NIC_METRICS)
_UNIT = re.compile(r"\s*\[(?:Throughput )?([^\]]*)\]\s*$")
_ROW = np.dtype([("start", "i8"), ("end", "i8"), ("value", "f8")])
Key = tuple[str, int, str]
"""(counter name, GPU id or -1 for the host, unit)"""


class CounterReader:
    """Reads the samples of a report; ``table`` gives those of one process."""

    def __init__(self, source: Source, folder: Path) -> None:
        self._source = source
        self._gpu = self._gpu_keys()
        self._nic = self._nic_keys()
        self._keys: list[Key] = sorted({*self._gpu.values(), *self._nic.values()})
        self._spill = SortedSpill(folder / "counters", _ROW) if self._keys else None

    def _gpu_keys(self) -> dict[int, Key]:
        keys = {}
        for kind, metric, text in self._source.rows("TARGET_INFO_GPU_METRICS", ("typeId", "metricId", "metricName")):
            name, unit = _split_unit(str(text))
            keys[_pack(kind, metric)] = (f"gpu.{name}", int(kind) & 0xFF, unit)
        return keys

    def _nic_keys(self) -> dict[int, Key]:
        """(metric list, metric) -> key; one series per port is made when read."""
        rows = self._source.rows("TARGET_INFO_NETWORK_METRICS", ("metricsListId", "metricsIdx", "name", "unit"))
        return {_pack(a or 0, b or 0): (f"nic.{clean(str(name))}", -1, str(unit or "")) for a, b, name, unit in rows}

    def read(self, tick: Tick) -> None:
        """All samples."""
        if self._spill is None:
            return
        wanted = dict.fromkeys(("timestamp", "typeId", "metricId"), Kind.INT) | {"value": Kind.FLOAT}
        for columns in self._source.batches(GPU_METRICS, wanted):
            keys = _pack(columns["typeId"], columns["metricId"])
            self._add(keys, self._gpu, columns["timestamp"], columns["value"], tick)
        wanted = dict.fromkeys(("start", "end", "metricsListId", "metricsIdx"), Kind.INT) | {"value": Kind.FLOAT}
        for columns in self._source.batches(NIC_METRICS, wanted):
            keys = _pack(_or0(columns["metricsListId"]), _or0(columns["metricsIdx"]))
            self._add(keys, self._nic, np.maximum(columns["start"], columns["end"]), columns["value"], tick)

    def _add(self, keys: Any, names: dict[int, Key], time: Any, value: Any, tick: Tick) -> None:
        unique, inverse = np.unique(keys, return_inverse=True)
        index = {key: i for i, key in enumerate(self._keys)}
        group = np.array([index[names[k]] if k in names else -1 for k in unique.tolist()], np.int64)[inverse]
        keep = (group >= 0) & (time != NULL)
        rows = np.empty(int(keep.sum()), _ROW)
        rows["start"] = rows["end"] = time[keep]
        rows["value"] = value[keep]
        assert self._spill is not None
        self._spill.append(group[keep], rows)
        tick(len(keys))

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

    def close(self) -> None:
        """Close the scratch file."""
        if self._spill:
            self._spill.close()


def _pack(high: Any, low: Any) -> Any:
    return (high << 20) ^ low


def _or0(values: Any) -> Any:
    return np.where(values == NULL, 0, values)


def _split_unit(text: str) -> tuple[str, str]:
    """'PCIe RX Throughput [Throughput %]' -> ('PCIe RX Throughput', '%')."""
    text = clean(text)
    found = _UNIT.search(text)
    return (text[: found.start()], found.group(1)) if found else (text, "")
