"""Memory of one process opened by another through CUDA's IPC functions, many handles one after the other: PyTorch's tensors by
torch.multiprocessing, blocks of CuPy's and of Numba's own IPC where those are installed. Contents are compared, and nothing may be left."""

import multiprocessing
import os
import sys

from common import arguments, emit, tensor_digest

COUNT = 50


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def of_torch(there, back):
    """The other process: digests of tensors, which it closes again; then its descriptors, more than after the first."""
    first = None
    while (tensor := there.recv()) is not None:
        back.send(tensor_digest(tensor))
        del tensor
        # PyTorch closes a handle when no tensor of its segment is left.
        if first is None:
            first = descriptors()
    back.send(descriptors() - first)


def of_cupy(there, back):
    import cupy

    while (message := there.recv()) is not None:
        handle, count = message
        address = cupy.cuda.runtime.ipcOpenMemHandle(handle)
        memory = cupy.cuda.UnownedMemory(address, 4 * count, None)
        seen = cupy.ndarray(count, cupy.uint32, cupy.cuda.MemoryPointer(memory, 0))
        back.send(int(seen.sum(dtype=cupy.uint64)))
        cupy.cuda.runtime.ipcCloseMemHandle(address)
    back.send(0)


def of_numba(there, back):
    while (handle := there.recv()) is not None:
        with handle as seen:
            back.send(int(seen.copy_to_host().sum(dtype="uint64")))
    back.send(0)


def exchange(context, importer, made):
    """Sends what `made` yields, each with the answer that is right. Returns how many answers were wrong, and what was left."""
    receiving, there = context.Pipe(duplex=False)
    back, sending = context.Pipe(duplex=False)
    other = context.Process(target=importer, args=(receiving, sending), daemon=True)
    other.start()
    receiving.close()
    sending.close()
    wrong = 0
    for message, right in made:
        there.send(message)
        if not back.poll(60):
            return "no answer", "?"
        wrong += back.recv() != right
    there.send(None)
    left = back.recv()
    other.join(30)
    return wrong, left


def tensors(torch):
    for turn in range(COUNT):
        tensor = torch.arange(1000 + turn * 40_000, device="cuda", dtype=torch.float32) + turn
        torch.cuda.synchronize()
        yield tensor, tensor_digest(tensor)


def cupy_blocks(cupy):
    for turn in range(COUNT):
        count = 300 + turn * 40_000
        # Not from CuPy's pool: a handle opens the whole allocation from its beginning.
        memory = cupy.cuda.Memory(4 * count)
        block = cupy.ndarray(count, cupy.uint32, cupy.cuda.MemoryPointer(memory, 0))
        block[:] = cupy.arange(count, dtype=cupy.uint32) + turn
        cupy.cuda.Device().synchronize()
        yield (cupy.cuda.runtime.ipcGetMemHandle(memory.ptr), count), int(block.sum(dtype=cupy.uint64))


def numba_blocks(cuda, numpy):
    for turn in range(COUNT):
        host = numpy.arange(300 + turn * 40_000, dtype=numpy.uint32) + numpy.uint32(turn)
        block = cuda.to_device(host)
        cuda.synchronize()
        yield block.get_ipc_handle(), int(host.sum(dtype="uint64"))


def main():
    arguments(steps=1)
    import torch
    import torch.multiprocessing

    total = 0
    wrong, left = exchange(torch.multiprocessing.get_context("spawn"), of_torch, tensors(torch))
    emit("torch", wrong)
    print(f"descriptors of the importer beyond those of its first tensor: {left}", file=sys.stderr)
    total += wrong != 0
    spawn = multiprocessing.get_context("spawn")
    try:
        import cupy
    except ImportError:
        emit("cupy", "not installed")
    else:
        wrong, _ = exchange(spawn, of_cupy, cupy_blocks(cupy))
        emit("cupy", wrong)
        total += wrong != 0
    try:
        import numpy
        from numba import cuda
    except ImportError:
        emit("numba", "not installed")
    else:
        wrong, _ = exchange(spawn, of_numba, numba_blocks(cuda, numpy))
        emit("numba", wrong)
        total += wrong != 0
    emit("wrong", total)


if __name__ == "__main__":
    main()
