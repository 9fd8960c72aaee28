/* Preloaded: writes how often each driver function was called to the file CALLS, when the process ends. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

__attribute__((destructor)) static void write_calls(void)
{
    const char *path = getenv("CALLS");
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    void (*calls)(int) = driver ? (void (*)(int))dlsym(driver, "standin_calls") : NULL;
    int file = path && calls ? open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600) : -1;
    if (file >= 0) {
        calls(file);
        close(file);
    }
}
