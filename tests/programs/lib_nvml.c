/* Plays NVML: this process uses as many bytes as NVML_BYTES says. */
#include <string.h>
#include <stdlib.h>
#include <unistd.h>

typedef struct { unsigned pid; unsigned long long bytes; unsigned gpu_instance, compute_instance; } Process;

static int users;

int nvmlInitWithFlags(unsigned flags) {
    users++;
    return flags == 2 ? 0 : 2;
}

int nvmlShutdown(void) { return --users == 0 ? 0 : 1; }

int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
    *device = &users;
    return strncmp(uuid, "GPU-", 4) == 0 && strlen(uuid) == 40 ? 0 : 2;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, Process *processes) {
    const char *bytes = getenv("NVML_BYTES");
    if (device != &users || *count < 2 || !bytes) return 7;
    *count = 2;
    processes[0] = (Process){.pid = 1, .bytes = 999};
    processes[1] = (Process){.pid = (unsigned)getpid(), .bytes = strtoull(bytes, NULL, 10)};
    return 0;
}
