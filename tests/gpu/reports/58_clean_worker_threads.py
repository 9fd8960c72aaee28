"""Eight threads share one GPU. Each is started when the one before is ready; then they work on rounds of jobs."""
import queue
import threading

import torch

THREADS, ROUNDS, SIZE = 8, 60, 1024


class Worker(threading.Thread):
    def __init__(self, number, jobs, weight):
        super().__init__(name=f"gpu-worker-{number}", daemon=True)
        self.jobs = jobs
        self.weight = weight
        self.ready = threading.Event()
        self.answers = []

    def work(self, seed):
        generator = torch.Generator(device="cuda").manual_seed(seed)
        x = torch.randn(SIZE, SIZE, device="cuda", generator=generator)
        for _ in range(4):
            x = torch.tanh(x @ self.weight)
        return x.abs().mean().item()

    def run(self):
        self.work(0)
        self.ready.set()
        while True:
            seed = self.jobs.get()
            if seed is None:
                self.jobs.task_done()
                return
            self.answers.append(self.work(seed))
            self.jobs.task_done()


def start_workers(jobs, weight):
    workers = []
    for number in range(THREADS):
        worker = Worker(number, jobs, weight)
        worker.start()
        worker.ready.wait()
        workers.append(worker)
        print(f"{worker.name} ready, allocated {torch.cuda.memory_allocated() >> 20} MiB")
    return workers


def main():
    jobs = queue.Queue()
    weight = torch.randn(SIZE, SIZE, device="cuda") * SIZE**-0.5
    workers, allocated = start_workers(jobs, weight), []
    for number in range(ROUNDS):
        for job in range(THREADS):
            jobs.put(number * THREADS + job)
        jobs.join()
        allocated.append(torch.cuda.memory_allocated())
    for _ in workers:
        jobs.put(None)
    for worker in workers:
        worker.join()
    half = ROUNDS // 2
    rate = (allocated[-1] - allocated[half]) // (ROUNDS - 1 - half)
    print("answers:", sum(len(worker.answers) for worker in workers))
    print(f"TRUTH allocated_growth_per_iter={rate} peak={torch.cuda.max_memory_allocated()} "
          f"reserved={torch.cuda.max_memory_reserved()}")


main()
