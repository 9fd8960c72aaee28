"""Documents become summaries, every fourth row of their tokens; the summaries then become one index, or stay apart."""
import torch

LIMIT_MIB, DOCUMENTS, ROWS, WIDTH = 2304, 200, 2048, 1024
MIB = 1 << 20


def limit_process(mib):
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(mib * MIB / total)


def read_documents(count):
    """The tokens of all documents stay until the last is read, since links between them are followed."""
    documents, summaries = [], []
    for _ in range(count):
        tokens = torch.randn(ROWS, WIDTH, device="cuda")
        documents.append(tokens)
        summaries.append(tokens[::4].clone())
    return documents, summaries


def links(documents):
    return sum(one[0, 0].item() * other[0, 0].item() > 0 for one, other in zip(documents, documents[1:]))


class Index:
    def __init__(self, summaries):
        self.parts = summaries
        try:
            self.parts = [torch.cat(summaries)]
        except torch.OutOfMemoryError as error:
            print(f"the index stays in parts: {str(error)[:160]}")

    def search(self, query):
        best = (float("-inf"), -1, -1)
        for number, part in enumerate(self.parts):
            score, row = (part @ query).max(0)
            best = max(best, (score.item(), number, row.item()))
        return best


def main():
    limit_process(LIMIT_MIB)
    documents, summaries = read_documents(DOCUMENTS)
    print("links:", links(documents))
    documents.clear()
    reserved, in_use = torch.cuda.memory_reserved(), torch.cuda.memory_allocated()
    print(f"before the index: reserved {reserved // MIB} MiB, allocated {in_use // MIB} MiB")
    index, allocated = Index(summaries), []
    for _ in range(12):
        index.search(torch.randn(WIDTH, device="cuda"))
        allocated.append(torch.cuda.memory_allocated())
    half = len(allocated) // 2
    rate = (allocated[-1] - allocated[half]) // (len(allocated) - 1 - half)
    print(f"TRUTH allocated_growth_per_iter={rate} peak={torch.cuda.max_memory_allocated()} "
          f"reserved={torch.cuda.max_memory_reserved()} wanted={DOCUMENTS * ROWS // 4 * WIDTH * 4} "
          f"reserved_before={reserved} allocated_before={in_use}")


main()
