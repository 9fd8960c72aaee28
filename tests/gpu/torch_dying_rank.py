"""PyTorch: a job of two ranks over NCCL, of which rank 1 runs out of memory in its fifth step. The parent ends the other one
then, as launchers do, and says how each ended; its own exit code is that of rank 1."""

import os
import subprocess
import sys
import tempfile

GIB = 1 << 30


def work(rank, meeting):
    """One rank."""
    import torch
    import torch.distributed as ranks

    torch.cuda.set_device(rank)
    device = torch.device("cuda", rank)
    ranks.init_process_group("nccl", init_method=f"file://{meeting}", rank=rank, world_size=2, device_id=device)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1024, 1024).to(device), device_ids=[rank])
    for step in range(10):
        model(torch.randn(256, 1024, device=device)).square().mean().backward()
        torch.cuda.synchronize()
        if rank == 1 and step == 4:
            try:
                fill(torch, device)
            except torch.OutOfMemoryError:
                import traceback

                traceback.print_exc()
                # Without handlers that would wait for the other rank.
                sys.stderr.flush()
                os._exit(7)


def fill(torch, device):
    """Takes more than the device has, for itself."""
    whole = torch.cuda.get_device_properties(device).total_memory
    return [torch.empty(int(part * whole), dtype=torch.uint8, device=device) for part in (0.4, 0.45, 0.3)]


def main():
    # The machines that this runs on share their switches: no multicast.
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
    with tempfile.TemporaryDirectory() as folder:
        meeting = os.path.join(folder, "meeting")
        own = [sys.executable, os.path.abspath(__file__)]
        job = [subprocess.Popen([*own, str(rank), meeting], env={**os.environ, "RANK": str(rank)}) for rank in range(2)]
        code = job[1].wait()
        job[0].terminate()
        print(f"rank 1: {code}\nrank 0: {job[0].wait()}", flush=True)
    sys.exit(code)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        work(int(sys.argv[1]), sys.argv[2])
    else:
        main()
