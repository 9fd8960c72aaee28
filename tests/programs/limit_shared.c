/* Processes that share a limit. Arguments, by the first:
   crowd WORKERS MS KILLS MIB: workers until the time is over; kills that many, and starts others in their place.
   worker MIB: threads allocate at the edge of the limit until the file `stop` is there; the driver's own count is never above.
   turns FILE WHICH MIB: holds MIB in its turn (0 or 1), and asks for as much in the other's turn.
   figures: what the queries say of the device.
   exchange: memory goes to another process while NVML counts; then a request is refused.
   forks: asks NVML, and has a child use CUDA. */
#include "streams.h"
#include "turns.h"
#include <signal.h>
#include <sys/wait.h>

enum { THREADS = 8, KEPT = 6, MOST_WORKERS = 16 };

static CUcontext context;
static size_t limit, total;
static int over, granted, refused;

/* Bytes of the device that the driver gave to all processes. */
static size_t given(void) { return total - driver_free(); }

static void *at_the_edge(void *number) {
    uint64_t state = (uint64_t)number * 31337 + (uint64_t)getpid();
    CUdeviceptr piece[KEPT] = {0};
    OK(cuCtxSetCurrent(context));
    while (access("stop", F_OK) != 0) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        CUdeviceptr *one = &piece[(state >> 40) % KEPT];
        if (*one) OK(cuMemFree_v2(*one));
        *one = 0;
        CUresult result = cuMemAlloc_v2(one, 1 + (state >> 33) % (6 * MIB));
        if (result == SUCCESS) __atomic_add_fetch(&granted, 1, __ATOMIC_RELAXED);
        else if (result == OUT_OF_MEMORY) __atomic_add_fetch(&refused, 1, __ATOMIC_RELAXED), *one = 0;
        else OK(result);
        size_t now = given();
        if (now > limit && __atomic_add_fetch(&over, 1, __ATOMIC_RELAXED) == 1) printf("over by %zu KiB\n", (now - limit) >> 10);
    }
    for (int i = 0; i < KEPT; i++)
        if (piece[i]) OK(cuMemFree_v2(piece[i]));
    return NULL;
}

static int worker(void) {
    pthread_t thread[THREADS];
    size_t available = 0;
    context = start();
    CUresult (*info)(size_t *, size_t *) = NULL;
    *(void **)&info = true_symbol(driver, "cuMemGetInfo_v2");
    OK(info(&available, &total));
    for (size_t i = 0; i < THREADS; i++) OK(pthread_create(&thread[i], NULL, at_the_edge, (void *)i));
    for (int i = 0; i < THREADS; i++) OK(pthread_join(thread[i], NULL));
    printf("# worker %d %d %d\n", over, granted, refused);
    return over > 0;
}

static pid_t begin(const char *program, const char *mib) {
    pid_t child = fork();
    if (child == 0) {
        execl(program, program, "worker", mib, (char *)NULL);
        _exit(9);
    }
    return child;
}

static void crowd(int argc, char **argv) {
    TRUE(argc >= 6);
    int workers = atoi(argv[2]), ms = atoi(argv[3]), kills = atoi(argv[4]), wrong = 0, status;
    pid_t child[MOST_WORKERS];
    TRUE(workers <= MOST_WORKERS);
    for (int i = 0; i < workers; i++) child[i] = begin(argv[0], argv[5]);
    for (int i = 0; i <= kills; i++) {
        sleep_ms((uint64_t)(ms / (kills + 1)));
        if (i == kills) break;
        kill(child[i % workers], SIGKILL);
        /* Its successor starts before the kernel has let it go. */
        pid_t next = begin(argv[0], argv[5]);
        TRUE(waitpid(child[i % workers], &status, 0) > 0);
        TRUE(WIFSIGNALED(status));
        child[i % workers] = next;
    }
    FILE *stop = fopen("stop", "w");
    TRUE(stop != NULL);
    fclose(stop);
    for (int i = 0; i < workers; i++) {
        TRUE(waitpid(child[i], &status, 0) > 0);
        wrong += status != 0;
    }
    printf("wrong: %d\n", wrong);
}

static void turns(char **argv) {
    const char *file = argv[2];
    int which = atoi(argv[3]);
    size_t bytes = (size_t)atol(argv[4]) * MIB;
    CUdeviceptr block = 0;
    start();
    await_turn(file, which);
    printf("in turn %d: %d\n", which, cuMemAlloc_v2(&block, bytes));
    pass_turn(file);
    await_turn(file, 2);
    if (which == 0) {
        /* The other one frees its memory only now, and keeps it cached. */
        await_turn(file, 3);
        if (!block) printf("later: %d\n", cuMemAlloc_v2(&block, bytes));
        pass_turn(file);
        return;
    }
    if (block) OK(cuMemFree_v2(block));
    pass_turn(file);
    await_turn(file, 4);
}

/* Gives the device's name to the stand-in of NVML. */
static void name_device(void) {
    unsigned char uuid[16] = {0};
    char name[48], *to = name + sprintf(name, "GPU");
    OK(cuDeviceGetUuid_v2(uuid, 0));
    for (int i = 0; i < 16; i++) {
        if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) *to++ = '-';
        to += sprintf(to, "%02x", uuid[i]);
    }
    setenv("NVML_UUID", name, 1);
}

/* NVML's answer, found as PyTorch and Python find it. */
static void nvml(void) {
    struct { unsigned long long total, free, used; } memory = {0};
    struct { unsigned version; unsigned long long total, reserved, free, used; } second = {.version = 0x2000028};
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW), *device = NULL;
    if (!library) return;
    int (*by_index)(unsigned, void **) = NULL, (*info)(void *, void *) = NULL, (*info_2)(void *, void *) = NULL;
    *(void **)&by_index = dlsym(library, "nvmlDeviceGetHandleByIndex_v2");
    *(void **)&info = dlsym(library, "nvmlDeviceGetMemoryInfo");
    *(void **)&info_2 = dlsym(library, "nvmlDeviceGetMemoryInfo_v2");
    TRUE(by_index && info && info_2);
    OK(by_index(0, &device));
    OK(info(device, &memory));
    OK(info_2(device, &second));
    printf("nvml: total %llu free %llu used %llu; again %llu %llu %llu\n", memory.total >> 20, memory.free >> 20,
           memory.used >> 20, second.total >> 20, second.free >> 20, second.used >> 20);
    printf("no place for it: %d\n", info(device, NULL));
}

static void *without_context(void *unused) {
    size_t available = 7, all = 7, bytes = 0;
    CUdeviceptr block = 0;
    printf("without a context: %d %d", cuMemGetInfo_v2(&available, &all), cuMemAlloc_v2(&block, MIB));
    OK(cuDeviceTotalMem_v2(&bytes, 0));
    printf(", the device has %zu\n", bytes >> 20);
    /* Mapped memory needs no current context. */
    AllocationProp on_device = {.type = 1, .location = {1, 0}};
    CUhandle part = 0, too_much = 0;
    OK(cuMemCreate(&part, 20 * MIB, &on_device, 0));
    printf("mapped: too much %d", cuMemCreate(&too_much, 2048 * MIB, &on_device, 0));
    OK(cuMemAddressReserve(&block, 20 * MIB, 0, 0, 0));
    OK(cuMemMap(block, 20 * MIB, 0, part, 0));
    OK(cuMemUnmap(block, 20 * MIB));
    OK(cuMemAddressFree(block, 20 * MIB));
    printf(", freed %d\n", cuMemRelease(part));
    return unused;
}

/* Waits up to NVML_SECONDS for NVML's figure: the background thread asks after a second, and then every ten. */
static void wait_for_nvml(void) {
    const char *after = getenv("NVML_AFTER"), *seconds = getenv("NVML_SECONDS");
    size_t before = free_memory();
    if (!after || !seconds) return;
    fclose(fopen(after, "w"));
    for (int i = 0; i < atoi(seconds) * 200 && free_memory() == before; i++) sleep_ms(5);
}

static void wait_for(const char *file) {
    while (access(file, F_OK) != 0) sleep_ms(5);
}

/* While NVML counts, this process frees a block and another one gets as much: the device's free memory is the same. */
static void exchange(void) {
    CUdeviceptr block = 0, of_another = 0;
    CUresult (*allocate)(CUdeviceptr *, size_t) = NULL;
    start();
    *(void **)&allocate = true_symbol(driver, "cuMemAlloc_v2");
    OK(cuMemAlloc_v2(&block, 40 * MIB));
    size_t before = free_memory();
    wait_for("asked");
    OK(cuMemFree_v2(block));
    OK(allocate(&of_another, 40 * MIB));
    size_t between = free_memory();
    fclose(fopen(getenv("NVML_AFTER"), "w"));
    while (free_memory() == between) sleep_ms(1);
    printf("free: %zu, then %zu, at last %zu\n", before >> 20, between >> 20, free_memory() >> 20);
    printf("too much: %d\n", cuMemAlloc_v2(&block, 90 * MIB));
}

static void figures(void) {
    size_t available = 0, all = 0;
    pthread_t thread;
    CUdeviceptr block[4] = {0}, foreign = 0x1234567000;
    start();
    name_device();
    nvml();
    OK(pthread_create(&thread, NULL, without_context, NULL));
    OK(pthread_join(thread, NULL));
    printf("no place for it: %d; for either: %d %d %d\n", cuDeviceTotalMem_v2(NULL, 0), cuMemGetInfo_v2(NULL, NULL),
           cuMemGetInfo_v2(&available, NULL), cuMemGetInfo_v2(NULL, &all));
    printf("free %zu of %zu\n", available >> 20, all >> 20);
    for (int i = 0; i < 4; i++) printf("%d ", cuMemAlloc_v2(&block[i], 20 * MIB));
    printf("\na foreign address: %d\n", cuMemFree_v2(foreign));
    wait_for_nvml();
    printf("free %zu\n", free_memory() >> 20);
    nvml();
    for (int i = 0; i < 4; i++)
        if (block[i]) OK(cuMemFree_v2(block[i]));
    printf("free %zu\n", free_memory() >> 20);
}

/* NVML is asked before CUDA is used, and a child uses CUDA, as servers with worker processes do. */
static void forks(void) {
    int status = 0;
    nvml();
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        size_t available = 0, all = 0;
        CUdeviceptr block = 0;
        start();
        OK(cuMemGetInfo_v2(&available, &all));
        printf("child: free %zu of %zu", available >> 20, all >> 20);
        printf("; too much: %d\n", cuMemAlloc_v2(&block, 200 * MIB));
        exit(0);
    }
    TRUE(waitpid(child, &status, 0) == child && status == 0);
}

int main(int argc, char **argv) {
    TRUE(argc >= 2);
    if (!strcmp(argv[1], "crowd")) crowd(argc, argv);
    else if (!strcmp(argv[1], "turns")) turns(argv);
    else if (!strcmp(argv[1], "figures")) figures();
    else if (!strcmp(argv[1], "exchange")) exchange();
    else if (!strcmp(argv[1], "forks")) forks();
    else {
        limit = (size_t)atol(argv[2]) * MIB;
        return worker();
    }
    return 0;
}
