/* What a process sees of the library under GPUSHIM=off: owners of CUDA's functions, threads, descriptors, variables. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int (*get_address)(const char *, void **, int, uint64_t, int *);

static void *driver;

static void owner(const char *how, void *function)
{
    Dl_info info;
    const char *file = function != NULL && dladdr(function, &info) ? strrchr(info.dli_fname, '/') : NULL;
    printf("%s: %s\n", how, file != NULL ? file + 1 : "absent");
}

static int entries(const char *path)
{
    DIR *folder = opendir(path);
    int count = 0;
    while (folder != NULL && readdir(folder) != NULL)
        count++;
    if (folder != NULL)
        closedir(folder);
    return count;
}

static int call(const char *name, uint64_t a, uint64_t b)
{
    int (*function)(uint64_t, uint64_t) = (int (*)(uint64_t, uint64_t))dlsym(driver, name);
    int code = function(a, b);
    if (code != 0)
        printf("%s: %d\n", name, code);
    return code;
}

int main(void)
{
    uint64_t context = 0, address = 0;
    void *found = NULL;
    int status = 0;
    owner("before the driver", dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"));
    driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    owner("in the driver", dlsym(driver, "cuMemAlloc_v2"));
    owner("by default", dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"));
    owner("in the program", dlsym(dlopen(NULL, RTLD_NOW), "cuMemAlloc_v2"));
    call("cuInit", 0, 0);
    get_address get = (get_address)dlsym(driver, "cuGetProcAddress_v2");
    owner("cuGetProcAddress", get("cuMemAlloc", &found, 12000, 0, &status) == 0 ? found : NULL);
    call("cuDevicePrimaryCtxRetain", (uint64_t)&context, 0);
    call("cuCtxSetCurrent", context, 0);
    for (int i = 0; i < 100; i++) {
        call("cuMemAlloc_v2", (uint64_t)&address, 1 << 20);
        call("cuMemFree_v2", address, 0);
    }
    printf("threads %d, descriptors %d\n", entries("/proc/self/task") - 2, entries("/proc/self/fd") - 2);
    printf("NVTX: %s, PyTorch: %s\n", getenv("NVTX_INJECTION64_PATH") != NULL ? "set" : "unset",
           getenv("PYTORCH_CUDA_ALLOC_CONF") != NULL ? "set" : "unset");
    return 0;
}
