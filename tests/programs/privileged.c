/* What a process finds in its environment that the kernel calls privileged, as a set-user-id program's: PRIVILEGED in
   the environment stands for the kernel. Then it uses device memory. */
#include "program.h"
#include <sys/auxv.h>

__attribute__((visibility("default"))) unsigned long getauxval(unsigned long type) {
    unsigned long (*real)(unsigned long) = (unsigned long (*)(unsigned long))dlsym(RTLD_NEXT, "getauxval");
    if (type == AT_SECURE && getenv("PRIVILEGED")) return 1;
    return real(type);
}

int main(void) {
    static const char *const names[] = {"PYTORCH_CUDA_ALLOC_CONF", "XLA_PYTHON_CLIENT_ALLOCATOR", "TF_GPU_ALLOCATOR",
                                        "NVTX_INJECTION64_PATH", "_GPUSHIM_NVTX_BEFORE"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = getenv(names[i]);
        printf("%s: %s\n", names[i], value ? value : "none");
    }
    fflush(stdout);
    start();
    OK(cuMemFree_v2(allocate(1000)));
    return 0;
}
