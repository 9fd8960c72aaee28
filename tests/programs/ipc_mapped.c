/* Memory that the program mapped itself, given to another process by cuIpcGetMemHandle: `share`, `questions` (what the
   driver says of it), `rounds` (an all-reduce of two processes). The segment is as an expandable one of PyTorch's: many
   pieces in one reserved range. */
#include "program.h"
#include <sys/wait.h>

enum { PAGE = 2 << 20, PAGES = 16, ROUNDS = 1000, WORDS = 3000 };

struct segment { CUdeviceptr base; CUhandle piece[PAGES]; };

/* What the importer is to compare: words of the memory that lie at an offset of what the handle opens. */
struct task { IpcHandle handle; size_t offset, words, first; };
struct answer { CUresult open; unsigned wrong; size_t bytes; int before, behind; };

static unsigned word_at(size_t word) { return (unsigned)(word * 2654435761u + 17); }

static struct segment reserved(void) {
    struct segment made = {0};
    OK(cuMemAddressReserve(&made.base, PAGES * (size_t)PAGE, 0, 0, 0));
    return made;
}

/* Maps new memory at a page of the segment, with words that tell their place. */
static void put(struct segment *segment, int page) {
    static unsigned words[PAGE / sizeof(unsigned)];
    size_t count = PAGE / sizeof *words;
    AllocationProp prop = {.type = 1, .location = {1, 0}};
    AccessDesc both = {{1, 0}, 3};
    CUdeviceptr at = segment->base + (size_t)page * PAGE;
    OK(cuMemCreate(&segment->piece[page], PAGE, &prop, 0));
    OK(cuMemMap(at, PAGE, 0, segment->piece[page], 0));
    OK(cuMemSetAccess(at, PAGE, &both, 1));
    for (size_t i = 0; i < count; i++) words[i] = word_at((size_t)page * count + i);
    OK(cuMemcpyHtoD_v2(at, words, PAGE));
}

static void take(struct segment *segment, int page) {
    OK(cuMemUnmap(segment->base + (size_t)page * PAGE, PAGE));
    OK(cuMemRelease(segment->piece[page]));
}

static CUdeviceptr mapping_of(CUdeviceptr at) {
    CUdeviceptr base = 0;
    OK(cuMemGetAddressRange_v2(&base, NULL, at));
    return base;
}

static CUdeviceptr range_of(CUdeviceptr at) {
    CUdeviceptr start = 0;
    OK(cuPointerGetAttribute(&start, 11, at));
    return start;
}

/* True if there is memory at an address. */
static int is_there(CUdeviceptr at) {
    CUdeviceptr same = 0;
    return cuPointerGetAttribute(&same, 3, at) == SUCCESS;
}

static struct answer compared(const struct task *task) {
    static unsigned words[4 * PAGE / sizeof(unsigned)];
    struct answer answer = {0};
    CUdeviceptr block = 0, base = 0;
    answer.open = cuIpcOpenMemHandle_v2(&block, task->handle, 1);
    if (answer.open) return answer;
    OK(cuMemGetAddressRange_v2(&base, &answer.bytes, block));
    CUdeviceptr first = block + task->offset, last = first + task->words * sizeof *words - 1;
    TRUE(base == block && range_of(first) == block);
    answer.before = is_there(block - 1);
    answer.behind = is_there(block + answer.bytes);
    if (is_there(first) && is_there(last)) {
        OK(cuMemcpyDtoH_v2(words, first, task->words * sizeof *words));
        for (size_t i = 0; i < task->words; i++) answer.wrong += words[i] != word_at(task->first + i);
    } else answer.wrong = ~0u;
    OK(cuIpcCloseMemHandle(block));
    return answer;
}

static int there[2], back[2];

static pid_t importer(void (*imports)(void)) {
    TRUE(!pipe(there) && !pipe(back));
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        close(there[1]), close(back[0]);
        imports();
        fflush(stdout);
        _exit(0);
    }
    close(there[0]), close(back[1]);
    return pid;
}

static void imports_tasks(void) {
    struct task task;
    for (int first = 1; read(there[0], &task, sizeof task) == (ssize_t)sizeof task; first = 0) {
        if (first) start();
        struct answer answer = compared(&task);
        TRUE(write(back[1], &answer, sizeof answer) == (ssize_t)sizeof answer);
    }
}

/* Prints the importer's answer to a task. */
static void asked(const char *what, struct task task) {
    struct answer answer;
    TRUE(write(there[1], &task, sizeof task) == (ssize_t)sizeof task);
    TRUE(read(back[0], &answer, sizeof answer) == (ssize_t)sizeof answer);
    printf("%s: open %d, wrong %d, MiB %llu, beside it %d %d\n", what, answer.open, (int)answer.wrong, answer.bytes / MIB,
           answer.before, answer.behind);
}

/* A task about `bytes` from an address on, with the handle of `of`, which opens at `base`. */
static struct task exported(const struct segment *segment, CUdeviceptr of, CUdeviceptr base, CUdeviceptr at, size_t bytes) {
    struct task task = {.offset = at - base, .words = bytes / sizeof(unsigned), .first = (at - segment->base) / sizeof(unsigned)};
    CUresult result = cuIpcGetMemHandle(&task.handle, of);
    if (result) printf("handle: %d\n", result);
    return task;
}

/* Pages 0, 1 and 2 have memory, and 4 and 5. */
static void share(void) {
    pid_t pid = importer(imports_tasks);
    start();
    struct segment all = reserved();
    for (int page = 0; page < 6; page++)
        if (page != 3) put(&all, page);
    CUdeviceptr page4 = all.base + 4 * (size_t)PAGE, inner = page4 + MIB, over = page4 + PAGE + 4096;
    struct task first = exported(&all, page4, page4, inner, PAGE);
    asked("over two pieces", first);
    struct task again = exported(&all, inner, mapping_of(inner), inner, PAGE);
    asked("an inner pointer", again);
    printf("one handle: %d\n", !memcmp(&first.handle, &again.handle, sizeof first.handle));
    asked("in the last piece", exported(&all, over, mapping_of(over), over, MIB));
    TRUE(range_of(over) == all.base);
    asked("by the range", exported(&all, range_of(over), all.base, over, MIB));
    put(&all, 6);
    asked("grown", exported(&all, inner, mapping_of(inner), inner, 2 * (size_t)PAGE));
    take(&all, 0);
    asked("no memory at the beginning", exported(&all, all.base, all.base, over, MIB));
    printf("where nothing is: %d %d\n", cuIpcGetMemHandle(&again.handle, all.base + 4096),
           cuIpcGetMemHandle(&again.handle, all.base + 3 * (size_t)PAGE));
    take(&all, 5);
    put(&all, 5);
    asked("a piece was replaced, behind it", first);
    first.words = MIB / sizeof(unsigned);
    asked("a piece was replaced, before it", first);
    for (int page = 1; page < 7; page++)
        if (page != 3) take(&all, page);
    for (int page = 4; page < 6; page++) put(&all, page);
    asked("freed, and other memory there", first);
    for (int page = 4; page < 6; page++) take(&all, page);
    OK(cuMemAddressFree(all.base, PAGES * (size_t)PAGE));
    close(there[1]);
    waitpid(pid, NULL, 0);
}

static void properties_of(const char *what, CUhandle handle) {
    AllocationProp got = {0};
    int descriptor = -1;
    OK(cuMemGetAllocationPropertiesFromHandle(&got, handle));
    int exports = cuMemExportToShareableHandle(&descriptor, handle, 1, 0);
    printf("%s: handles %u, rdma %u, descriptor %d\n", what, got.handles, got.rdma, exports);
    if (descriptor >= 0) close(descriptor);
}

/* Answers that are the same with the shim, of memory with and without descriptors. */
static void questions(void) {
    start();
    CUdeviceptr base = 0;
    AccessDesc both = {{1, 0}, 3};
    OK(cuMemAddressReserve(&base, 2 * (size_t)PAGE, 0, 0, 0));
    for (unsigned handles = 0; handles < 2; handles++) {
        AllocationProp prop = {.type = 1, .handles = handles, .location = {1, 0}};
        CUdeviceptr at = base + handles * PAGE;
        CUhandle handle = 0, retained = 0;
        IpcHandle ipc;
        OK(cuMemCreate(&handle, PAGE, &prop, 0));
        properties_of("made", handle);
        OK(cuMemMap(at, PAGE, 0, handle, 0));
        OK(cuMemSetAccess(at, PAGE, &both, 1));
        uint64_t types = 9, capable = 0, start = 0, size = 0;
        OK(cuPointerGetAttribute(&types, 14, at + 5));
        OK(cuPointerGetAttribute(&capable, 10, at + 5));
        OK(cuPointerGetAttribute(&start, 11, at + 5));
        OK(cuPointerGetAttribute(&size, 12, at + 5));
        printf("types %d, IPC %d, range %d of %zu\n", (int)types, (int)capable, start == base, (size_t)size);
        int numbers[] = {14, 10};
        void *values[] = {&types, &capable};
        types = 9;
        OK(cuPointerGetAttributes(2, numbers, values, at));
        printf("together: types %d, IPC %d, offset %d\n", (int)types, (int)capable, (int)(at + 5 - mapping_of(at + 5)));
        printf("# handle %d\n", cuIpcGetMemHandle(&ipc, at + 5));
        OK(cuMemRetainAllocationHandle(&retained, (void *)(at + 5)));
        OK(cuMemRelease(handle));
        properties_of("retained", retained);
        OK(cuMemRelease(retained));
        OK(cuMemRetainAllocationHandle(&retained, (void *)at));
        properties_of("retained again", retained);
        OK(cuMemRelease(retained));
        printf("released: %d\n", cuMemRelease(retained));
    }
    OK(cuMemUnmap(base, 2 * (size_t)PAGE));
    OK(cuMemAddressFree(base, 2 * (size_t)PAGE));
}

/* One of two processes: adds its words and the other's, which it reads where the handle opens, half of the rounds by a
   graph that was captured once. */
static void reduces(int in, int out, unsigned mine) {
    static unsigned words[WORDS], sum[WORDS];
    char go = 1;
    start();
    struct segment all = reserved();
    for (int page = 0; page < 4; page++) put(&all, page);
    CUdeviceptr own = all.base + PAGE + 12 * MIB / 10, other = 0, result = all.base + 3 * (size_t)PAGE;
    own -= own % 512;
    struct { IpcHandle handle; size_t offset; } mine_is, theirs;
    mine_is.offset = own - range_of(own);
    OK(cuIpcGetMemHandle(&mine_is.handle, range_of(own)));
    TRUE(write(out, &mine_is, sizeof mine_is) == (ssize_t)sizeof mine_is && read(in, &theirs, sizeof theirs) == (ssize_t)sizeof theirs);
    OK(cuIpcOpenMemHandle_v2(&other, theirs.handle, 1));
    CUstream stream = side_stream();
    CUgraph graph = NULL;
    CUgraphExec exec = NULL;
    OK(cuStreamBeginCapture_v2(stream, 2));
    OK(cuMemcpyDtoDAsync_v2(result, other + theirs.offset, sizeof words, stream));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    unsigned wrong = 0;
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (unsigned i = 0; i < WORDS; i++) words[i] = i * (mine + 1) + round;
        OK(cuMemcpyHtoD_v2(own, words, sizeof words));
        /* So few bytes of pageable memory may still be on their way. */
        OK(cuCtxSynchronize());
        TRUE(write(out, &go, 1) == 1 && read(in, &go, 1) == 1);
        if (round % 2) OK(cuGraphLaunch(exec, stream));
        else OK(cuMemcpyDtoDAsync_v2(result, other + theirs.offset, sizeof words, stream));
        OK(cuMemcpyDtoHAsync_v2(sum, result, sizeof sum, stream));
        OK(cuStreamSynchronize(stream));
        for (unsigned i = 0; i < WORDS; i++) wrong += words[i] + sum[i] != 3 * i + 2 * round;
        TRUE(write(out, &go, 1) == 1 && read(in, &go, 1) == 1);
    }
    printf("%u rounds, wrong: %u\n", ROUNDS, wrong);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuIpcCloseMemHandle(other));
}

static void second(void) { reduces(there[0], back[1], 1); }

int main(int argc, char **argv) {
    TRUE(argc == 2);
    if (!strcmp(argv[1], "share")) share();
    else if (!strcmp(argv[1], "questions")) questions();
    else if (!strcmp(argv[1], "rounds")) {
        pid_t pid = importer(second);
        reduces(back[0], there[1], 0);
        waitpid(pid, NULL, 0);
    } else return 4;
    return 0;
}
