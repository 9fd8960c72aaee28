"""A retrieval service with four workers. What a session asked is embedded once and can be compared with later questions."""
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor, as_completed

import torch
from torch import nn

REQUESTS, WORKERS, TOKENS, WIDTH = 60, 4, 256, 1024


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(4096, WIDTH)
        self.mix = nn.Linear(WIDTH, 2 * WIDTH)
        self.out = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, tokens):
        hidden = torch.tanh(self.mix(self.embed(tokens)))
        return self.out(hidden)


class Service:
    def __init__(self):
        self.encoder = Encoder().cuda().eval()
        self.documents = torch.randn(2048, WIDTH, device="cuda")
        self.sessions = {}
        self.gpu = threading.Lock()
        self.allocated = []

    @torch.inference_mode()
    def search(self, session, tokens):
        embedding = self.encoder(tokens.to("cuda"))
        self.sessions.setdefault(session, []).append(embedding)
        scores = embedding.mean(0) @ self.documents.T
        return scores.argmax().item()

    def handle(self, tokens, session=None):
        """One request; who sends no session gets a new one."""
        session = session or uuid.uuid4().hex
        with self.gpu:
            found = self.search(session, tokens)
            self.allocated.append(torch.cuda.memory_allocated())
        return {"session": session, "document": found}


def questions(count):
    for _ in range(count):
        yield torch.randint(0, 4096, (TOKENS,))


def main():
    service = Service()
    with ThreadPoolExecutor(max_workers=WORKERS, thread_name_prefix="worker") as pool:
        futures = [pool.submit(service.handle, tokens) for tokens in questions(REQUESTS)]
        answers = [future.result() for future in as_completed(futures)]
    allocated = service.allocated
    half = REQUESTS // 2
    rate = (allocated[-1] - allocated[half]) // (REQUESTS - 1 - half)
    print("answers:", len(answers), "sessions:", len(service.sessions))
    print(f"TRUTH allocated_growth_per_iter={rate} peak={torch.cuda.max_memory_allocated()} "
          f"reserved={torch.cuda.max_memory_reserved()}")


main()
