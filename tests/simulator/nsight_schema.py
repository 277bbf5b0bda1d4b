"""Tables of Nsight Systems SQLite exports, by version, as ``name[!][:TYPE]`` words (``!`` = NOT NULL)."""

from __future__ import annotations

VERSIONS = {
    "2021": None,
    "2023.3": ("2023.3.1.92", "3.4.0"),
    "2024.6": ("2024.6.2.25", "3.16.1"),
    "2026.1": ("2026.1.1.204", "3.24.14"),
}
_SPAN = "start! end! deviceId! contextId! {green}streamId! correlationId globalPid"
_KERNEL = (
    _SPAN
    + " demangledName! shortName! {mangled}launchType cacheConfig registersPerThread! gridX! gridY! gridZ! blockX!"
    " blockY! blockZ! staticSharedMemory! dynamicSharedMemory! localMemoryPerThread! localMemoryTotal! gridId!"
    " sharedMemoryExecuted graphNodeId sharedMemoryLimitConfig{kernel_new}"
)
_KERNEL_2026 = (
    " qmdBulkReleaseDone qmdPreexitDone qmdLastCtaDone graphId clusterX clusterY clusterZ clusterSchedulingPolicy"
    " maxPotentialClusterSize maxActiveClusters sharedMemoryRequestedPercentage"
)
_GPU = (
    "vmId! id! name:TEXT busLocation:TEXT isDiscrete l2CacheSize totalMemory memoryBandwidth clockRate"
    " smCount pwGpuId uuid:TEXT luid chipName:TEXT cuDevice ctxswDevPath:TEXT ctrlDevPath:TEXT revision"
    " nodeMask constantMemory maxIPC maxRegistersPerBlock maxShmemPerBlock maxShmemPerBlockOptin"
    " maxShmemPerSm maxRegistersPerSm threadsPerWarp asyncEngines maxWarpsPerSm maxBlocksPerSm"
    " maxThreadsPerBlock maxBlockDimX maxBlockDimY maxBlockDimZ maxGridDimX maxGridDimY maxGridDimZ"
    " computeMajor computeMinor smMajor smMinor"
)
_TABLES = {
    "StringIds": "id!:INTEGER_KEY value!:TEXT",
    "ANALYSIS_DETAILS": "globalVid! duration! startTime! stopTime!",
    "PROCESSES": "globalPid pid name:TEXT",
    "ThreadNames": "nameId! priority globalTid",
    "TARGET_INFO_SESSION_START_TIME": "utcEpochNs utcTime:TEXT localTime:TEXT{system_clock}",
    "TARGET_INFO_SYSTEM_ENV": "globalVid{env_required} devStateName!:TEXT name!:TEXT nameEnum! value!:TEXT",
    "CUPTI_ACTIVITY_KIND_KERNEL": _KERNEL,
    "CUPTI_ACTIVITY_KIND_MEMCPY": _SPAN
    + " bytes! copyKind! deprecatedSrcId srcKind dstKind srcDeviceId srcContextId dstDeviceId dstContextId"
    " migrationCause graphNodeId virtualAddress{copies}",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start! end! eventClass! globalTid correlationId nameId! returnValue! callchainId",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": _SPAN + " {old_sync}syncType! eventId!{sync_new}",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": _SPAN + " graphId! graphExecId!",
    "NVTX_EVENTS": "start! end eventType! rangeId category color text:TEXT globalTid endGlobalTid textId domainId"
    " uint64Value int64Value doubleValue:REAL uint32Value int32Value floatValue:REAL jsonTextId"
    " jsonText:TEXT{binary}",
    "NVTX_PAYLOAD_SCHEMAS": "domainId schemaId name:TEXT type flags numEntries payloadSize alignTo",
    "NVTX_PAYLOAD_SCHEMA_ENTRIES": "domainId! schemaId! idx! flags type name:TEXT description:TEXT arrayOrUnionDetail"
    " offset",
    "TARGET_INFO_GPU": _GPU,
    "GPU_METRICS": "rawTimestamp timestamp typeId! metricId! value!",
    "TARGET_INFO_GPU_METRICS": "typeId! sourceId! typeName!:TEXT metricId! metricName!:TEXT",
}
_FROM = {
    "2023.3": {
        "META_DATA_EXPORT": "name!:TEXT value:TEXT",
        "META_DATA_CAPTURE": "name!:TEXT value:TEXT",
        "ENUM_CUDA_MEMCPY_OPER": "id!:INTEGER_KEY name:TEXT label:TEXT",
        "ENUM_CUDA_MEM_KIND": "id!:INTEGER_KEY name:TEXT label:TEXT",
    },
    "2024.6": {
        "DIAGNOSTIC_EVENT": "timestamp! timestampType! source! severity! text!:TEXT globalPid",
        "TARGET_INFO_CUDA_CONTEXT_INFO": "nullStreamId! hwId! vmId! processId! deviceId! contextId! parentContextId"
        " isGreenContext{context_new}",
    },
    "2026.1": {"TARGET_INFO_CUDA_DEVICE": "gpuId cudaId! pid! uuid:TEXT numMultiprocessors"},
}
_WORDS = {
    "2023.3": {"mangled": "mangledName "},
    "2024.6": {"green": "greenContextId ", "binary": " binaryData:TEXT", "env_required": ""},
    "2026.1": {
        "kernel_new": _KERNEL_2026,
        "copies": " copyCount",
        "old_sync": "deprecatedSyncType ",
        "sync_new": " eventSyncId",
        "system_clock": " systemClockNs",
        "context_new": " numMultiprocessors",
    },
}
_OLD = dict.fromkeys(
    ("green", "mangled", "kernel_new", "copies", "old_sync", "sync_new", "system_clock", "binary", "context_new"), ""
) | {"env_required": "!"}

MEMCPY_OPER = (
    "UNKNOWN", "HTOD", "DTOH", "HTOA", "ATOH", "ATOA", "ATOD", "DTOA", "DTOD", "HTOH", "PTOP", "UVM_HTOD", "UVM_DTOH",
    "UVM_DTOD",
)  # fmt: skip
MEM_KIND = (
    "PAGEABLE", "PINNED", "DEVICE", "ARRAY", "MANAGED", "DEVICE_STATIC", "MANAGED_STATIC", "UNKNOWN",
)  # fmt: skip


def tables(version: str) -> dict[str, list[tuple[str, str, bool]]]:
    """Table -> columns (name, declared type, not null) of an export of that version."""
    words, declared = dict(_OLD), dict(_TABLES)
    for since in ("2023.3", "2024.6", "2026.1"):
        if version >= since:
            words |= _WORDS[since]
            declared |= _FROM[since]
    return {name: [_column(w) for w in text.format(**words).split()] for name, text in declared.items()}


def _column(word: str) -> tuple[str, str, bool]:
    name, _, kind = word.partition(":")
    return name.rstrip("!"), kind or "INTEGER", name.endswith("!")


def ddl(table: str, columns: list[tuple[str, str, bool]]) -> str:
    """CREATE TABLE."""
    parts = []
    for name, kind, required in columns:
        key = kind == "INTEGER_KEY"
        parts.append(f'"{name}" {"INTEGER" if key else kind}{" NOT NULL" if required else ""}')
        if key:
            parts[-1] += " PRIMARY KEY"
    return f"CREATE TABLE {table} ({', '.join(parts)})"
