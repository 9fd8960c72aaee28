/* Plays NVML: this process uses as many bytes as NVML_BYTES says, beside the process NVML_ANOTHER. The answer waits up to a
   minute for the file NVML_AFTER; then the question has made the file `asked`. After the first answer, NVML_LATER says how
   many. Its first device has 1 GiB, of which 96 MiB are used and 32 MiB reserved. */
#include <stdio.h>
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
    const char *bytes = getenv("NVML_BYTES"), *after = getenv("NVML_AFTER");
    if (device != &users || *count < 2 || !bytes) return 7;
    static int answers;
    if (answers++ > 0 && getenv("NVML_LATER")) bytes = getenv("NVML_LATER");
    if (after) fclose(fopen("asked", "w"));
    for (int i = 0; i < 12000 && after && access(after, F_OK) != 0; i++) usleep(5000);
    *count = 2;
    const char *another = getenv("NVML_ANOTHER");
    processes[0] = (Process){.pid = another ? (unsigned)atol(another) : 1, .bytes = 999};
    processes[1] = (Process){.pid = (unsigned)getpid(), .bytes = strtoull(bytes, NULL, 10)};
    return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    *device = &users;
    return index == 0 ? 0 : 2;
}

int nvmlDeviceGetUUID(void *device, char *uuid, unsigned length) {
    const char *name = getenv("NVML_UUID");
    return device == &users && name && (unsigned)snprintf(uuid, length, "%s", name) < length ? 0 : 2;
}

int nvmlDeviceGetMemoryInfo(void *device, unsigned long long *memory) {
    if (device != &users || !memory) return 2;
    memory[0] = 1024ull << 20, memory[1] = 928ull << 20, memory[2] = 96ull << 20;
    return 0;
}

int nvmlDeviceGetMemoryInfo_v2(void *device, void *memory) {
    unsigned long long values[4] = {1024ull << 20, 32ull << 20, 896ull << 20, 96ull << 20};
    if (device != &users || *(unsigned *)memory != 0x2000028) return 25;
    memcpy((char *)memory + 8, values, sizeof values);
    return 0;
}
