"""PyTorch: CUDA tensors sent to another process through torch.multiprocessing, read there (on the last
GPU if there are several), changed there, and compared. A refusal is a line of its own; wrong data is
another."""

import sys

from common import arguments, emit, tensor_digest

SIZES = [1000, 300_000, 5_000_000]


def receive(there, back):
    """The other process: digests of what arrives, and one added to each element in place."""
    import torch

    last = torch.device("cuda", torch.cuda.device_count() - 1)
    while (tensor := there.recv()) is not None:
        seen = tensor_digest(tensor)
        copied = tensor_digest(tensor.to(last))
        tensor += 1
        torch.cuda.synchronize()
        # The exporter reuses its memory only after this process let go.
        del tensor
        back.send((seen, copied))


def main():
    options = arguments(steps=4)
    import torch
    import torch.multiprocessing as processes

    context = processes.get_context("spawn")
    # One way each, so that neither end waits for itself.
    receiving, there = context.Pipe(duplex=False)
    back, sending = context.Pipe(duplex=False)
    other = context.Process(target=receive, args=(receiving, sending), daemon=True)
    other.start()
    # The child's ends are the child's: should it die, recv() here ends with an error.
    receiving.close()
    sending.close()
    wrong, refused = 0, 0
    for step in range(options.steps):
        for size in SIZES:
            # A neighbour first, so that the tensor does not begin its segment.
            neighbour = torch.full((1000,), -1.0, device="cuda")
            tensor = torch.arange(size, device="cuda", dtype=torch.float32) + step
            expected, after = tensor_digest(tensor), tensor_digest(tensor + 1)
            torch.cuda.synchronize()
            try:
                there.send(tensor)
            except RuntimeError as error:
                refused += 1
                print(f"refused: {type(error).__name__}: {str(error).splitlines()[0]}", file=sys.stderr)
                continue
            if not back.poll(60):
                emit("no answer", step, size)
                sys.exit(3)
            right = back.recv() == (expected, expected) and tensor_digest(tensor) == after
            right = right and bool((neighbour == -1).all())
            wrong += not right
            emit("sent", step, size, right)
    there.send(None)
    other.join(30)
    emit("wrong", wrong)
    emit("refused", refused)
    emit("other process", other.exitcode)


if __name__ == "__main__":
    main()
