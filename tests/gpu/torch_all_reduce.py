"""All-reduce of two PyTorch processes as the custom one of vLLM and SGLang: each adds its own tensor and the other's, which it reads
through CUDA's IPC handle of the memory that contains it, eagerly and in a captured graph, whose input lies in the graph's own pool. Each
process has its own GPU if there are two. `--base` says how the beginning of that memory is found: `range`, by
CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, or `mapping`, by cuMemGetAddressRange."""

import ctypes
import sys

from common import arguments, emit

RANGE_START = 11  # CU_POINTER_ATTRIBUTE_RANGE_START_ADDR
COUNT = 6_000_000  # elements: 24 MB, more than one piece of an expandable segment
LEFT = 100_000  # elements that are not shared, before and behind the tensor

SUM = """
extern "C" __global__ void sum(float *out, const float *mine, unsigned low, unsigned high, int count) {
    const float *theirs = (const float *)((unsigned long long)high << 32 | low);
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) out[i] = mine[i] + theirs[i];
}
"""


class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_ubyte * 64)]


class Refused(Exception):
    """CUDA's error code for a call."""


def driver():
    library = ctypes.CDLL("libcuda.so.1")
    library.cuIpcOpenMemHandle_v2.argtypes = [ctypes.c_void_p, Handle, ctypes.c_uint]
    library.cuIpcGetMemHandle.argtypes = [ctypes.c_void_p, ctypes.c_uint64]
    library.cuPointerGetAttribute.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64]
    library.cuMemGetAddressRange_v2.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64]
    library.cuIpcCloseMemHandle.argtypes = [ctypes.c_uint64]
    return library


def call(function, *arguments):
    code = function(*arguments)
    if code:
        raise Refused(f"{function.__name__} {code}")


def exported(cuda, tensor, base):
    """The handle of the memory that contains a tensor, and where the tensor begins in it."""
    start, handle = ctypes.c_uint64(), Handle()
    if base == "range":
        call(cuda.cuPointerGetAttribute, ctypes.byref(start), RANGE_START, tensor.data_ptr())
    else:
        call(cuda.cuMemGetAddressRange_v2, ctypes.byref(start), None, tensor.data_ptr())
    call(cuda.cuIpcGetMemHandle, ctypes.byref(handle), start.value)
    return bytes(handle.bytes), tensor.data_ptr() - start.value


def opened(cuda, given):
    """The address of the other process's tensor, and of the memory that contains it."""
    handle, offset = given
    start = ctypes.c_uint64()
    call(cuda.cuIpcOpenMemHandle_v2, ctypes.byref(start), Handle.from_buffer_copy(handle), 1)
    return start.value + offset, start.value


class Reducer:
    """Sums of an own tensor and another process's memory, on the current stream."""

    def __init__(self, torch):
        self.kernel = torch.cuda._compile_kernel(SUM, "sum")

    def sum(self, out, mine, theirs):
        self.kernel((256, 1, 1), (256, 1, 1), (out, mine, theirs & 0xFFFFFFFF, theirs >> 32, mine.numel()))


def within(torch, count):
    """A tensor with others before and behind it, so that it neither begins nor ends its segment."""
    before = torch.full((LEFT,), -1.0, device="cuda")
    tensor = torch.zeros(count, device="cuda")
    return tensor, (before, torch.full((LEFT,), -1.0, device="cuda"))


def exchanged(there, back, value):
    there.send(value)
    return back.recv()


def reduces(rank, base, rounds, there, back):
    """The work of one process. Returns how many sums were wrong, or the error."""
    import torch

    torch.cuda.set_device(rank % torch.cuda.device_count())
    cuda, reducer = driver(), Reducer(torch)
    mine, beside = within(torch, COUNT)
    out, steps = torch.zeros_like(mine), torch.arange(COUNT, device="cuda", dtype=torch.float32) % 1024
    torch.cuda.synchronize()

    def share(tensor):
        try:
            given = exported(cuda, tensor, base)
        except Refused as error:
            given = str(error)
        other = exchanged(there, back, given)
        refused = [one for one in (given, other) if isinstance(one, str)]
        if refused:
            raise Refused(refused[0])
        return opened(cuda, other)

    theirs, first = share(mine)
    # Within a graph: its input is in the graph's pool, and is shared when the capture has ended.
    capture, sums = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(capture):
        inner = mine * 2
    torch.cuda.synchronize()
    inner_theirs, second = share(inner)
    with torch.cuda.graph(sums):
        reducer.sum(out, inner, inner_theirs)
    wrong = 0
    for turn in range(rounds):
        torch.add(steps * (rank + 1), turn, out=mine)
        capture.replay()
        torch.cuda.synchronize()
        exchanged(there, back, turn)
        if turn % 2:
            sums.replay()
        else:
            reducer.sum(out, mine, theirs)
        expected = (steps * 3 + 2 * turn) * (1 + turn % 2)
        wrong += not torch.equal(out, expected)
        exchanged(there, back, turn)
        # Memory comes and goes beside it.
        scratch = torch.full((COUNT // 2 + 10_000 * (turn % 50),), float(turn), device="cuda")
        if turn % 100 == 99:
            del scratch
            torch.cuda.empty_cache()
    wrong += not all(bool((one == -1).all()) for one in beside)
    torch.cuda.synchronize()
    exchanged(there, back, "end")
    for start in {first, second}:
        call(cuda.cuIpcCloseMemHandle, start)
    return wrong


def one(rank, base, rounds, there, back, said):
    try:
        said.send(reduces(rank, base, rounds, there, back))
    except Refused as error:
        said.send(str(error))


def main():
    options = arguments(steps=1000, base="range")
    import torch.multiprocessing

    context = torch.multiprocessing.get_context("spawn")
    (from_second, to_first), (from_first, to_second) = context.Pipe(duplex=False), context.Pipe(duplex=False)
    answers = []
    processes = []
    for rank, ends in enumerate(((to_second, from_second), (to_first, from_first))):
        receiving, sending = context.Pipe(duplex=False)
        process = context.Process(target=one, args=(rank, options.base, options.steps, *ends, sending))
        process.start()
        sending.close()
        answers.append(receiving)
        processes.append(process)
    # The ends are the processes': should one of them die, the other's recv() ends with an error.
    for end in (from_second, to_first, from_first, to_second):
        end.close()
    wrong, refused = 0, 0
    for rank, answer in enumerate(answers):
        try:
            said = answer.recv()
        except EOFError:
            said = "it died"
        if isinstance(said, str):
            refused += 1
            print(f"refused: process {rank}: {said}", file=sys.stderr)
        else:
            wrong += said
    emit("wrong", wrong)
    emit("refused", refused)
    for process in processes:
        process.join(60)
    sys.exit(any(process.exitcode != 0 for process in processes))


if __name__ == "__main__":
    main()
