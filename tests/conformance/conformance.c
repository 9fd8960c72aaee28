/* What a CUDA driver does, one observation per line, in a form that does not depend on the machine.
 * Build: gcc -Wall -Wextra -O1 -o conformance *.c -ldl -pthread
 * Run:   ./conformance [section ...]   (needs a GPU, or the stand-in's libcuda.so.1 on LD_LIBRARY_PATH) */
#define _GNU_SOURCE
#include "conformance.h"
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

void *driver;
#define DEFINE(name, args) CUresult(*name) args;
FUNCTIONS(DEFINE)
#undef DEFINE

/* Stands for any function that the driver does not export; on x86-64 and AArch64 extra arguments do no harm. */
static CUresult missing(void) { return MISSING; }

static void bind(void **slot, const char *name) {
    *slot = dlsym(driver, name);
    if (!*slot) *slot = (void *)missing;
}

static void bind_all(void) {
#define BIND(name, args) bind((void **)(void *)&name, #name);
    FUNCTIONS(BIND)
#undef BIND
}

const char *code_name(CUresult result) {
    static char other[32];
    switch (result) {
    case MISSING: return "missing";
    case 0: return "0";
    case 1: return "1 INVALID_VALUE";
    case 2: return "2 OUT_OF_MEMORY";
    case 3: return "3 NOT_INITIALIZED";
    case 101: return "101 INVALID_DEVICE";
    case 201: return "201 INVALID_CONTEXT";
    case 217: return "217 PEER_ACCESS_UNSUPPORTED";
    case 400: return "400 INVALID_HANDLE";
    case 401: return "401 ILLEGAL_STATE";
    case 500: return "500 NOT_FOUND";
    case 600: return "600 NOT_READY";
    case 708: return "708 PRIMARY_CONTEXT_ACTIVE";
    case 709: return "709 CONTEXT_IS_DESTROYED";
    case 712: return "712 HOST_MEMORY_ALREADY_REGISTERED";
    case 713: return "713 HOST_MEMORY_NOT_REGISTERED";
    case 800: return "800 NOT_PERMITTED";
    case 801: return "801 NOT_SUPPORTED";
    case 900: return "900 STREAM_CAPTURE_UNSUPPORTED";
    case 901: return "901 STREAM_CAPTURE_INVALIDATED";
    case 905: return "905 STREAM_CAPTURE_ISOLATION";
    case 906: return "906 STREAM_CAPTURE_IMPLICIT";
    case 907: return "907 CAPTURED_EVENT";
    default: snprintf(other, sizeof other, "%d", result); return other;
    }
}

static void line(const char *topic, va_list args, const char *value) {
    char name[256];
    vsnprintf(name, sizeof name, topic, args);
    printf("%s = %s\n", name, value);
}
void text(const char *value, const char *topic, ...) {
    va_list args;
    va_start(args, topic);
    line(topic, args, value);
    va_end(args);
}
void code(CUresult result, const char *topic, ...) {
    va_list args;
    va_start(args, topic);
    line(topic, args, code_name(result));
    va_end(args);
}
void number(long long value, const char *topic, ...) {
    char digits[32];
    snprintf(digits, sizeof digits, "%lld", value);
    va_list args;
    va_start(args, topic);
    line(topic, args, digits);
    va_end(args);
}

CUcontext start(void) {
    CUcontext context = NULL;
    CUdevice device = 0;
    CUresult result = cuInit(0);
    if (!result) result = cuDeviceGet(&device, 0);
    if (!result) result = cuDevicePrimaryCtxRetain(&context, device);
    if (!result) result = cuCtxSetCurrent(context);
    if (result) {
        fprintf(stderr, "conformance: no usable device 0: error %d\n", result);
        exit(2);
    }
    return context;
}

CUstream side_stream(void) {
    CUstream stream = NULL;
    cuStreamCreate(&stream, 1);
    return stream;
}

CUevent plain_event(void) {
    CUevent event = NULL;
    cuEventCreate(&event, 2);
    return event;
}

size_t free_memory(void) {
    size_t available = 0, total = 0;
    cuMemGetInfo_v2(&available, &total);
    return available;
}

/* The slow item. On a GPU: as many large memsets as take about 60 ms here, in a row. On the stand-in: its own kernel. */
#define SLOW_NS 60000000ull
#define SLOW_BYTES (512 * MIB)
static struct { CUcontext context; CUdeviceptr buffer; CUevent done; } slow_state[4];
static unsigned slow_count;
static int slow_index;

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void slow_prepare(CUresult (*kernel)(CUstream, uint64_t, size_t, const void *)) {
    CUcontext context = NULL;
    cuCtxGetCurrent(&context);
    for (slow_index = 0; slow_index < 3 && slow_state[slow_index].context && slow_state[slow_index].context != context;) slow_index++;
    if (slow_state[slow_index].context == context) return;
    slow_state[slow_index].context = context;
    slow_state[slow_index].done = plain_event();
    if (kernel) return;
    cuMemAlloc_v2(&slow_state[slow_index].buffer, SLOW_BYTES);
    if (slow_count) return;
    CUstream stream = side_stream();
    for (int warm = 0; warm < 3; warm++) cuMemsetD8Async(slow_state[slow_index].buffer, 1, SLOW_BYTES, stream);
    cuStreamSynchronize(stream);
    uint64_t began = now_ns();
    for (int i = 0; i < 40; i++) cuMemsetD8Async(slow_state[slow_index].buffer, 1, SLOW_BYTES, stream);
    cuStreamSynchronize(stream);
    uint64_t each = (now_ns() - began) / 40 + 1;
    slow_count = (unsigned)(SLOW_NS / each) + 1;
    if (slow_count > 900) slow_count = 900; /* more would fill the driver's queue and hold the host */
    cuStreamDestroy_v2(stream);
}

void slow(CUstream stream) {
    CUresult (*kernel)(CUstream, uint64_t, size_t, const void *) =
        (CUresult(*)(CUstream, uint64_t, size_t, const void *))dlsym(driver, "standin_launch");
    slow_prepare(kernel);
    if (kernel)
        kernel(stream, SLOW_NS, 0, NULL);
    else
        for (unsigned i = 0; i < slow_count; i++) cuMemsetD8Async(slow_state[slow_index].buffer, 1, SLOW_BYTES, stream);
    cuEventRecord(slow_state[slow_index].done, stream);
}

int slow_pending(void) { return cuEventQuery(slow_state[slow_index].done) == NOT_READY; }

int after_slow(CUevent event) {
    uint64_t began = now_ns();
    while (now_ns() - began < 2000000000u) {
        int pending = slow_pending();
        if (cuEventQuery(event) == 0) return !pending || !slow_pending();
        usleep(200);
    }
    return -1;
}

void verdict(const char *topic, CUresult result, int before, int after) {
    const char *how = !before ? "inconclusive" : after ? "returned at once" : "waited";
    text(how, "%s.waits", topic);
    code(result, "%s.code", topic);
}

static const struct { const char *name; Section *run; } sections[] = {
    {"procaddress", section_procaddress}, {"nocontext", section_nocontext}, {"context", section_context},
    {"alloc", section_alloc},             {"kinds", section_kinds},         {"copy", section_copy},
    {"attributes", section_attributes},   {"order", section_order},         {"ctxevent", section_ctxevent},
    {"vmm", section_vmm},                 {"pool", section_pool},           {"capture", section_capture},
    {"graph", section_graph},             {"ipc", section_ipc},
    {"questions", section_questions},
};

/* Each section is a process of its own: fresh driver state, and a crash or a hang ends that section only. */
static void run_section(const char *name, Section *run) {
    printf("# %s\n", name);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        alarm(25);
        driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
        bind_all();
        run();
        fflush(stdout);
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFSIGNALED(status))
        printf("%s.section = %s\n", name, WTERMSIG(status) == SIGALRM ? "timed out" : "crashed");
    else if (WEXITSTATUS(status))
        printf("%s.section = exit %d\n", name, WEXITSTATUS(status));
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    /* Probed in a child, so that the sections fork from a process that the driver never saw. */
    pid_t probe = fork();
    if (probe == 0) {
        if (dlopen("libcuda.so.1", RTLD_NOW)) _exit(0);
        fprintf(stderr, "conformance: libcuda.so.1 cannot be loaded: %s\n", dlerror());
        _exit(2);
    }
    int status = 0;
    waitpid(probe, &status, 0);
    if (status) return 2;
    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++) {
        int wanted = argc < 2;
        for (int a = 1; a < argc; a++) wanted |= !strcmp(argv[a], sections[i].name);
        if (wanted) run_section(sections[i].name, sections[i].run);
    }
    return 0;
}
