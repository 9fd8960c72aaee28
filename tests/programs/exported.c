/* Memory that others may reach is freed for real: `ipc`, `tokens`, `attribute`, `dmabuf`, or `kept` for the rule. */
#include "program.h"

int main(int argc, char **argv) {
    CUdeviceptr block[2];
    start();
    TRUE(argc == 2);
    const char *how = argv[1];
    size_t before = driver_free();
    for (int i = 0; i < 2; i++) block[i] = allocate(64 * MIB);
    size_t during = driver_free();
    CUresult result = 0;
    for (int i = 0; i < 2; i++) {
        if (!strcmp(how, "ipc")) {
            IpcHandle handle;
            result = cuIpcGetMemHandle(&handle, block[i] + (i ? 4096 : 0));
        } else if (!strcmp(how, "tokens")) {
            struct { unsigned long long p2p; unsigned va; } tokens;
            result = cuPointerGetAttribute(&tokens, 5, block[i]);
        } else if (!strcmp(how, "attribute")) {
            int on = 1;
            result = cuPointerSetAttribute(&on, 6, block[i]);
        } else if (!strcmp(how, "dmabuf")) {
            int descriptor = -1;
            result = cuMemGetHandleForAddressRange(&descriptor, block[i], 64 * MIB, 1, 0);
        }
        printf("%s: %d\n", how, result);
    }
    printf("# taken %zu\n", before - during);
    for (int i = 0; i < 2; i++) OK(cuMemFree_v2(block[i]));
    printf("# exported %d given back %d\n", result == SUCCESS && strcmp(how, "kept"), driver_free() == before);
    printf("free again: %d\n", cuMemFree_v2(block[0]));
    CUdeviceptr next = allocate(64 * MIB);
    OK(cuMemFree_v2(next));
    return 0;
}
