"""Beam search with a small decoder. Of each sequence the best hypothesis is kept, with the logits it came from."""
from dataclasses import dataclass

import torch
from torch import nn

SEQUENCES, BEAMS, LENGTH, START, VOCABULARY, WIDTH = 8, 8, 128, 104, 16384, 512


@dataclass
class Hypothesis:
    tokens: list
    score: float
    origin: torch.Tensor


class Decoder(nn.Module):
    """All positions at once, without a cache of keys and values."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.position = nn.Parameter(torch.randn(LENGTH, WIDTH) * 0.02)
        self.mix = nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens):
        hidden = self.embed(tokens) + self.position
        hidden = hidden + torch.tanh(self.mix(hidden).cumsum(1) / LENGTH)
        logits = self.head(hidden)
        return logits


class BeamSearch:
    def __init__(self, decoder):
        self.decoder = decoder

    def expand(self, tokens, scores, place):
        logits = self.decoder(tokens)
        current = logits[:, place - 1]
        candidates = scores[:, None] + current.log_softmax(-1)
        scores, flat = candidates.view(-1).topk(BEAMS)
        beam, token = flat // VOCABULARY, flat % VOCABULARY
        tokens = tokens[beam].clone()
        tokens[:, place] = token
        return tokens, scores, current[beam[0].item()]

    @torch.inference_mode()
    def decode(self, prompt):
        tokens = torch.zeros(BEAMS, LENGTH, dtype=torch.long, device="cuda")
        tokens[:, :START] = prompt
        scores = torch.full((BEAMS,), -1e9, device="cuda")
        scores[0] = 0.0
        for place in range(START, LENGTH):
            tokens, scores, origin = self.expand(tokens, scores, place)
        return Hypothesis(tokens[0].tolist(), scores[0].item(), origin)


def main():
    torch.manual_seed(3)
    search, finished, allocated = BeamSearch(Decoder().cuda().eval()), [], []
    for _ in range(SEQUENCES):
        prompt = torch.randint(1, VOCABULARY, (START,), device="cuda")
        finished.append(search.decode(prompt))
        del prompt
        allocated.append(torch.cuda.memory_allocated())
    finished.sort(key=lambda hypothesis: hypothesis.score, reverse=True)
    print("best score:", round(finished[0].score, 3), "its last logits:", round(finished[0].origin.amax().item(), 3))
    half = SEQUENCES // 2
    rate = (allocated[-1] - allocated[half]) // (SEQUENCES - 1 - half)
    print(f"TRUTH allocated_growth_per_iter={rate} peak={torch.cuda.max_memory_allocated()} "
          f"reserved={torch.cuda.max_memory_reserved()}")


main()
