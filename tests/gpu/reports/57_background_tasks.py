"""An asyncio service. Its tasks are held in a set, since the event loop itself has only weak references to tasks."""
import asyncio

import torch
from torch import nn

REQUESTS, TEXTS, TOKENS, WIDTH = 60, 16, 128, 1024


class Embedder(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(8192, WIDTH)
        self.layer = nn.TransformerEncoderLayer(WIDTH, 8, 2 * WIDTH, batch_first=True)

    def forward(self, tokens):
        hidden = self.layer(self.table(tokens))
        return hidden.mean(1)


class Server:
    def __init__(self):
        self.model = Embedder().cuda().eval()
        self.tasks = set()
        self.served = 0
        self.allocated = []

    async def embed(self, texts):
        await asyncio.sleep(0.002)
        with torch.inference_mode():
            return self.model(texts.to("cuda"))

    async def serve(self, texts):
        vectors = await self.embed(texts)
        norm = vectors.norm(dim=-1).mean().item()
        self.served += 1
        self.allocated.append(torch.cuda.memory_allocated())
        if self.served % 20 == 0:
            print(f"{self.served} served, mean norm {norm:.3f}")
        return vectors

    def accept(self, texts):
        task = asyncio.create_task(self.serve(texts), name=f"request-{self.served}")
        self.tasks.add(task)
        return task


async def client(server):
    """One request after the other; the answer is looked at and dropped."""
    sizes = []
    for _ in range(REQUESTS):
        texts = torch.randint(0, 8192, (TEXTS, TOKENS))
        vectors = await server.accept(texts)
        sizes.append(tuple(vectors.shape))
        del vectors
    return sizes


async def main():
    server = Server()
    sizes = await client(server)
    allocated = server.allocated
    half = REQUESTS // 2
    rate = (allocated[-1] - allocated[half]) // (REQUESTS - 1 - half)
    print("answers:", len(sizes))
    print(f"TRUTH allocated_growth_per_iter={rate} peak={torch.cuda.max_memory_allocated()} "
          f"reserved={torch.cuda.max_memory_reserved()}")


asyncio.run(main())
