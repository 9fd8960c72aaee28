/* A program on an allocator that does as PyTorch's. Arguments: the library with that allocator; what is done;
   for turns the file of the turns and which are this process's; for a race the file and MiB. */
#include "program.h"
#include "turns.h"
#include <sys/wait.h>

static void *(*torch_malloc)(size_t), *(*torch_uncached)(size_t);
static void (*torch_free)(void *), (*torch_empty)(void), (*torch_private)(int), (*torch_error)(uint64_t);
static uint64_t (*torch_reserved)(void);
static int (*torch_share)(int), (*torch_parts)(void);
static void (*torch_handles)(int *);
static CUstream stream;
static int wrong, refused;

enum { MOST = 64, KEPT = 4 };
typedef struct { CUdeviceptr at; size_t bytes; unsigned char value; } Tensor;

static Tensor tensor(size_t bytes) {
    static unsigned char value;
    Tensor made = {(CUdeviceptr)torch_malloc(bytes), bytes, ++value};
    if (!made.at) refused++;
    else OK(cuMemsetD8Async(made.at, made.value, bytes, stream));
    return made;
}

static void look(Tensor t) {
    static unsigned char back[32 * MIB];
    if (!t.at) return;
    memset(back, 0, t.bytes);
    OK(cuMemcpyDtoHAsync_v2(back, t.at, t.bytes, stream));
    OK(cuStreamSynchronize(stream));
    for (size_t i = 0; i < t.bytes; i++) wrong += back[i] != t.value;
}

static void drop(Tensor *t) {
    if (t->at) torch_free((void *)t->at);
    t->at = 0;
}

/* Rounds of tensors of other sizes each, of which some stay for another round, and then a large one: the segments are
   in use everywhere, but for the most part not. At most 44 MiB live. */
static void rounds(int times) {
    static Tensor kept[MOST];
    static int n;
    for (int round = 0; round < times; round++) {
        size_t bytes = (3 + round % 5) * MIB - 4096 * (round % 7);
        Tensor all[MOST];
        int m = 0;
        for (size_t sum = 0; sum + bytes <= 32 * MIB; sum += bytes) all[m++] = tensor(bytes);
        for (int i = 0; i < n; i++) {
            look(kept[i]);
            drop(&kept[i]);
        }
        n = 0;
        for (int i = 0; i < m; i++) {
            if (i % KEPT == 1) kept[n++] = all[i];
            else drop(&all[i]);
        }
        Tensor large = tensor(24 * MIB);
        look(large);
        drop(&large);
    }
}

static void graph(void) {
    CUgraph made = NULL;
    CUgraphExec exec = NULL;
    rounds(3);
    Tensor input = tensor(3 * MIB);
    OK(cuStreamSynchronize(stream));
    OK(cuStreamBeginCapture_v2(stream, 2));
    torch_private(1);
    Tensor within = tensor(9 * MIB);
    OK(cuMemcpyDtoDAsync_v2(within.at + 4 * MIB, input.at, 3 * MIB, stream));
    Tensor result = tensor(5 * MIB);
    CUdeviceptr at = within.at;
    drop(&within);
    torch_private(0);
    OK(cuStreamEndCapture(stream, &made));
    OK(cuGraphInstantiateWithFlags(&exec, made, 0));
    for (int i = 0; i < 20; i++) {
        rounds(2);
        OK(cuGraphLaunch(exec, stream));
        look(input);
        look(result);
        look((Tensor){at, 4 * MIB, within.value});
        look((Tensor){at + 4 * MIB, 3 * MIB, input.value});
    }
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(made));
}

/* Has the program IMPORTER read a byte at the beginning of a segment, and one further on. */
static void imported(const IpcHandle *handle, size_t at) {
    char text[2 * sizeof *handle + 1], place[32];
    const char *importer = getenv("IMPORTER");
    for (size_t i = 0; i < sizeof *handle; i++) sprintf(text + 2 * i, "%02x", (unsigned char)handle->bytes[i]);
    sprintf(place, "%zu", at);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        execl(importer, importer, "read", text, place, (char *)NULL);
        _exit(9);
    }
    int status = 1;
    TRUE(waitpid(child, &status, 0) == child && status == 0);
}

/* What functions about mapped and about host memory say of a segment: none of them has an effect. */
static void refusals(CUdeviceptr at, size_t bytes) {
    AllocationProp prop = {.type = 1, .location = {1, 0}};
    AccessDesc none = {{1, 0}, 0};
    CUhandle handle = 0, own = 0;
    CUdeviceptr other = 0, page = at & ~(CUdeviceptr)(2 * MIB - 1);
    unsigned long long access = 9;
    unsigned flags = 0, on = 1;
    int fd = -1;
    OK(cuMemCreate(&own, 2 * MIB, &prop, 0));
    printf("retain %d, map %d, unmap %d, access %d, give back %d\n", cuMemRetainAllocationHandle(&handle, (void *)at),
           cuMemMap(page, 2 * MIB, 0, own, 0), cuMemUnmap(page, 2 * MIB), cuMemSetAccess(page, 2 * MIB, &none, 1),
           cuMemAddressFree(page, bytes));
    OK(cuMemRelease(own));
    int got = cuMemGetAccess(&access, &none.location, at);
    printf("its access %d: %llu, host pointer %d, flags %d, synchronous copies %d\n", got, access,
           cuMemHostGetDevicePointer_v2(&other, (void *)at, 0), cuMemHostGetFlags(&flags, (void *)at),
           cuPointerSetAttribute(&on, 6, at));
    printf("descriptor: inside %d", cuMemGetHandleForAddressRange(&fd, at, bytes, 1, 0));
    close(fd);
    printf(", beyond %d\n", cuMemGetHandleForAddressRange(&fd, at, bytes + 2 * MIB, 1, 0));
}

/* What the driver says of a tensor and of its segment. */
static void questions(void) {
    Tensor first = tensor(3 * MIB), second = tensor(7 * MIB);
    IpcHandle handle;
    CUdeviceptr base = 0;
    size_t bytes = 0;
    OK(cuMemGetAddressRange_v2(&base, &bytes, second.at + 5));
    printf("range: %d, %zu bytes\n", base == first.at, bytes);
    CUdeviceptr ends[] = {first.at, second.at + 5, first.at + 15 * MIB};
    for (int i = 0; i < 3; i++) {
        uint64_t start = 0, size = 0, pointer = 0;
        int type = 0, device = -1, capable = 0;
        OK(cuPointerGetAttribute(&start, 11, ends[i]));
        OK(cuPointerGetAttribute(&size, 12, ends[i]));
        OK(cuPointerGetAttribute(&pointer, 3, ends[i]));
        OK(cuPointerGetAttribute(&type, 2, ends[i]));
        OK(cuPointerGetAttribute(&device, 9, ends[i]));
        OK(cuPointerGetAttribute(&capable, 10, ends[i]));
        printf("attributes: %d, %llu bytes, %d, type %d on %d, IPC %d\n", start == first.at, (unsigned long long)size,
               pointer == ends[i], type, device, capable);
    }
    refusals(base, bytes);
    look(first);
    look(second);
    OK(cuIpcGetMemHandle(&handle, first.at));
    imported(&handle, second.at - first.at);
    rounds(3);
    look(first);
    look(second);
    drop(&first);
    drop(&second);
}

enum { PART = 20 * MIB, PARTS = 3 };

/* Maps the parts that the descriptors in the arguments have, reads a byte of each MiB, and changes the first one. */
static void importing(char **files) {
    AccessDesc access = {{1, 0}, 3};
    CUdeviceptr base = 0;
    CUhandle part[PARTS];
    OK(cuMemAddressReserve(&base, PARTS * PART, 0, 0, 0));
    for (int i = 0; i < PARTS; i++) {
        OK(cuMemImportFromShareableHandle(&part[i], (void *)(uintptr_t)atoi(files[i]), 1));
        OK(cuMemMap(base + (size_t)i * PART, PART, 0, part[i], 0));
    }
    OK(cuMemSetAccess(base, PARTS * PART, &access, 1));
    for (int i = 0; i < PARTS * 20; i++) {
        unsigned char byte = 0;
        OK(cuMemcpyDtoH_v2(&byte, base + (size_t)i * MIB, 1));
        printf("%d ", byte);
    }
    OK(cuMemsetD8_v2(base, 99, 1));
    OK(cuCtxSynchronize());
    for (int i = PARTS - 1; i >= 0; i--) {
        OK(cuMemUnmap(base + (size_t)i * PART, PART));
        OK(cuMemRelease(part[i]));
    }
    OK(cuMemAddressFree(base, PARTS * PART));
    printf("\n");
}

/* Has another process read and change tensors that lie across parts of a segment. */
static void shared(const char *library) {
    Tensor all[] = {tensor(15 * MIB), tensor(14 * MIB), tensor(12 * MIB), tensor(18 * MIB)};
    char file[PARTS][12];
    OK(cuStreamSynchronize(stream));
    for (int i = 0; i < PARTS; i++) {
        int made = torch_share(i);
        TRUE(made >= 0);
        sprintf(file[i], "%d", dup(made));
        close(made);
    }
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        execl("/proc/self/exe", "elastic", library, "import", file[0], file[1], file[2], (char *)NULL);
        _exit(9);
    }
    int status = 1;
    TRUE(waitpid(child, &status, 0) == child && status == 0);
    unsigned char first = 0;
    CUhandle retained = 0;
    CUdeviceptr base = 0;
    size_t bytes = 0;
    OK(cuMemcpyDtoH_v2(&first, all[0].at, 1));
    printf("changed to %d, access from nowhere %d\n", first, cuMemSetAccess(all[0].at, PART, NULL, 1));
    OK(cuMemGetAddressRange_v2(&base, &bytes, all[3].at));
    printf("# retain %d from_base %d\n", cuMemRetainAllocationHandle(&retained, (void *)all[3].at), base == all[0].at);
    if (retained) OK(cuMemRelease(retained));
    for (int i = 0; i < 4; i++) drop(&all[i]);
    rounds(3);
}

static void uncached(void) {
    Tensor all[6];
    for (int i = 0; i < 6; i++) {
        all[i] = (Tensor){(CUdeviceptr)torch_uncached(3 * MIB), 3 * MIB, (unsigned char)(i + 1)};
        OK(cuMemsetD8Async(all[i].at, all[i].value, 3 * MIB, stream));
    }
    rounds(3);
    for (int i = 0; i < 6; i++) {
        look(all[i]);
        OK(cuMemFree_v2(all[i].at));
    }
}

/* Rounds in turn with another process, which has the odd turns if this one has the even ones. */
static void turns(const char *file, int which) {
    for (int i = 0; i < 6; i++) {
        await_turn(file, 2 * i + which);
        rounds(3);
        OK(cuStreamSynchronize(stream));
        pass_turn(file);
    }
    await_turn(file, 12);
}

/* Makes a tensor at the same moment as another process. */
static void race(const char *file, size_t bytes) {
    /* The first part of the first range has memory at once. */
    Tensor first = tensor(MIB);
    drop(&first);
    pass_turn(file);
    await_turn(file, 2);
    Tensor made = tensor(bytes);
    OK(cuStreamSynchronize(stream));
    pass_turn(file);
    await_turn(file, 4);
    drop(&made);
}

int main(int argc, char **argv) {
    TRUE(argc >= 3);
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (!library) printf("%s\n", dlerror());
    TRUE(library != NULL);
#define LOOK_UP(name) *(void **)&name = dlsym(library, #name); TRUE(name != NULL)
    LOOK_UP(torch_malloc);
    LOOK_UP(torch_uncached);
    LOOK_UP(torch_free);
    LOOK_UP(torch_empty);
    LOOK_UP(torch_private);
    LOOK_UP(torch_error);
    LOOK_UP(torch_reserved);
    LOOK_UP(torch_share);
    LOOK_UP(torch_handles);
    LOOK_UP(torch_parts);
    start();
    stream = side_stream();
    const char *what = argv[2];
    if (!strcmp(what, "rounds")) rounds(40);
    if (!strcmp(what, "turns")) turns(argv[3], atoi(argv[4]));
    if (!strcmp(what, "race")) race(argv[3], (size_t)atol(argv[4]) * MIB);
    if (!strcmp(what, "graph")) graph();
    if (!strcmp(what, "questions")) questions();
    if (!strcmp(what, "uncached")) uncached();
    if (!strcmp(what, "shared")) shared(argv[1]);
    if (!strcmp(what, "import")) {
        importing(argv + 3);
        return 0;
    }
    if (!strcmp(what, "error")) {
        rounds(3);
        torch_error(512);
        rounds(20);
    }
    printf("wrong bytes: %d\n", wrong);
    printf("# refused %d reserved %llu\n", refused, (unsigned long long)torch_reserved());
    if (!strcmp(what, "handles")) {
        int code[6];
        rounds(3);
        int before = torch_parts();
        torch_handles(code);
        printf("# before %d after %d again %d\n", before, torch_parts(), torch_parts());
        for (int i = 0; i < 6; i++) printf("%d ", code[i]);
        OK(cuDevicePrimaryCtxReset_v2(0));
        return 0;
    }
    if (!strcmp(what, "reset")) {
        rounds(3);
        OK(cuDevicePrimaryCtxReset_v2(0));
        start();
        printf("# left %zu\n", free_memory());
        return 0;
    }
    OK(cuStreamSynchronize(stream));
    size_t before = driver_free();
    torch_empty();
    printf("# freed %lld\n", (long long)(driver_free() - before));
    return 0;
}
