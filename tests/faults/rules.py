"""What a process may see when a driver function fails: the rules that the fault sweep holds every run against."""

# Codes that a function may answer, by what it does. Every function may report an earlier, asynchronous failure.
ALWAYS = (1, 3, 4, 100, 101, 201, 400, 401, 700, 702, 709, 719, 801, 999)
BY_KIND = (
    # Takes memory, of the device or of the host.
    (("Alloc", "Create", "Reserve", "Map", "Register", "Load", "Instantiate", "Retain", "Import", "Open", "Graph"), (2, 800)),
    # Meets captures.
    (("Mem", "Stream", "Event", "Graph", "Ctx"), (900, 901, 902, 903, 904, 905, 906, 907, 908)),
    (("Query", "Synchronize", "Destroy"), (600,)),
    (("Launch", "Load", "Synchronize", "Graph"), (209, 214, 718)),
)


def codes(function):
    """The codes that this function may answer."""
    found = list(ALWAYS)
    for words, more in BY_KIND:
        if any(word in function for word in words):
            found += [code for code in more if code not in found]
    return found


# Calls that the shim answers by itself, or asks the driver for again: a failure below them need not reach the process.
SERVED = {
    "cuMemAlloc_v2", "cuMemFree_v2", "cuMemAllocAsync", "cuMemAllocAsync_ptsz", "cuMemAllocFromPoolAsync",
    "cuMemAllocFromPoolAsync_ptsz", "cuMemFreeAsync", "cuMemFreeAsync_ptsz", "cuMemGetAddressRange_v2",
    "cuPointerGetAttribute", "cuPointerGetAttributes", "cuMemPoolTrimTo", "cuMemRetainAllocationHandle",
    # Without descriptors, if it is refused with them.
    "cuMemCreate",
    # It stands in for the size of an allocation only, or for a graph's memory.
    "cuMemGetHandleForAddressRange", "cuIpcGetMemHandle",
}
# A block of which these were asked may stay with the pool for good: others may know its memory.
MAKES_STAY = {
    "cuPointerGetAttribute", "cuPointerGetAttributes", "cuPointerSetAttribute", "cuIpcGetMemHandle", "cuMemRetainAllocationHandle",
    "cuMemGetHandleForAddressRange",
}
# What the driver refuses to take back stays with it, and what is in a context that it refuses to enter: bytes may be
# missing at the end.
GIVES_BACK = {
    "cuCtxPushCurrent_v2",
    "cuMemFree_v2", "cuMemUnmap", "cuMemRelease", "cuMemFreeAsync", "cuMemFreeAsync_ptsz", "cuMemPoolTrimTo", "cuCtxDestroy_v2",
    "cuDeviceGraphMemTrim", "cuMemPoolDestroy",
}
# Some memory has no handle, and some no SYNC_MEMOPS: these fail without a fault, too.
MAY_FAIL = {"cuMemRetainAllocationHandle", "cuMemGetHandleForAddressRange", "cuIpcGetMemHandle", "cuPointerSetAttribute"}
# Another process's memory in pages can be mapped or not had at all.
NEEDS_MAPPINGS = {"cuIpcOpenMemHandle", "cuIpcOpenMemHandle_v2"}
OUT_OF_MEMORY = 2
# Pools of the workload: the default ones of two devices, one that it makes, and those of cudaMalloc under vmm.
POOLS = 5


def judge_call(function, code, call, result, struck):
    """One call of the process that did not go as on a driver without faults: (kind, complaint or None)."""
    if not struck:
        return "later", f"{call} gave {result}, and no fault struck it"
    if result == 0:
        kind = "served"
    elif result == code:
        kind = "passed on"
    elif result == OUT_OF_MEMORY:
        kind = "out of memory"
    else:
        return "another code", f"{call} gave {result} for the driver's {code} of {function}"
    if call == function and code not in (0, OUT_OF_MEMORY) and call not in SERVED and result != code:
        return kind, f"{call} gave {result}, though the driver said {code}"
    return kind, None
