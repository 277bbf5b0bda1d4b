"""The arguments of the events whose arguments matter."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from traceview_parsers.kineto.events import BAD, Events, Ident

_field = msgspec.field
_NONE = msgspec.Raw(b"")


class Launch(msgspec.Struct, gc=False):
    """Of a runtime or driver call."""

    correlation: int | None = -1


class GpuArgs(msgspec.Struct, gc=False):
    """Of a kernel, a copy, a memset; the second half also of ``record_param_comms`` on the host. -1: not told."""

    correlation: int | None = -1
    external_id: int | None = _field(default=-1, name="External id")
    device: Ident = None
    stream: Ident = None
    bytes: int | float | str | None = -1
    grid: msgspec.Raw = _NONE
    block: msgspec.Raw = _NONE
    collective: str | None = _field(default=None, name="Collective name")
    elems_in: int | None = _field(default=-1, name="In msg nelems")
    elems_out: int | None = _field(default=-1, name="Out msg nelems")
    dtype: str | None = None
    in_splits: str | None = _field(default=None, name="In split size")
    out_splits: str | None = _field(default=None, name="Out split size")
    group: Ident = _field(default=None, name="Process Group Name")
    group_desc: str | None = _field(default=None, name="Process Group Description")
    ranks: str | list[int] | None = _field(default=None, name="Process Group Ranks")
    group_size: int | None = _field(default=-1, name="Group size")
    first: int | None = _field(default=-1, name="Global rank start")
    stride: int | None = _field(default=-1, name="Global rank stride")
    rank: int | None = _field(default=-1, name="Rank")
    src: int | None = _field(default=-1, name="Src Rank")
    dst: int | None = _field(default=-1, name="Dst Rank")
    seq: int | None = _field(default=-1, name="Seq")
    comm_id: int | str | None = _field(default=None, name="Comms Id")


class MemoryArgs(msgspec.Struct, gc=False):
    """Of a ``[memory]`` instant."""

    delta: int | None = _field(default=None, name="Bytes")
    allocated: int | None = _field(default=None, name="Total Allocated")
    reserved: int | None = _field(default=None, name="Total Reserved")
    device_type: int | None = _field(default=None, name="Device Type")
    device: int | None = _field(default=None, name="Device Id")


class TensorArgs(msgspec.Struct, gc=False):
    """Of a host collective recorded with shapes."""

    dims: Any = _field(default=None, name="Input Dims")
    types: Any = _field(default=None, name="Input type")


T = TypeVar("T", bound=msgspec.Struct)


class ArgsDecoder:
    """Arguments of many events in one go; a strange value costs that value, not the event."""

    def __init__(self, kind: type[T]) -> None:
        self._kind = kind
        self._many = msgspec.json.Decoder(list[kind])  # type: ignore[valid-type]
        self._one = msgspec.json.Decoder(kind)

    def __call__(self, events: Events) -> list[Any]:
        """One struct per event."""
        raws = [e.args for e in events]
        try:
            return self._many.decode(b"[%b]" % b",".join(raws))
        except BAD:
            return [self._lenient(r) for r in raws]

    def _lenient(self, raw: Any) -> Any:
        text = bytes(raw)
        try:
            return self._one.decode(text)
        except BAD:
            pass
        try:
            found = msgspec.json.decode(text.decode("utf-8", "replace"))
        except BAD:
            found = None
        out = self._kind()
        for field in msgspec.structs.fields(self._kind) if isinstance(found, dict) else ():
            if field.encode_name in found:
                try:
                    value = msgspec.convert(found[field.encode_name], field.type, strict=False)
                except msgspec.ValidationError:
                    continue
                setattr(out, field.name, value)
        return out
