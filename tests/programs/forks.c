/* Forks before and after the first use of CUDA. Arguments: what the children do.
   `late-idle`, `late-cuda`, `late-exec`: after; `early-cuda`: before, then parent and child both use CUDA. */
#include "program.h"
#include <sys/wait.h>

static void some(int n) {
    for (int i = 0; i < n; i++) {
        CUdeviceptr block = allocate((size_t)(1 + i % 3) * MIB);
        OK(cuMemFree_v2(block));
    }
}

int main(int argc, char **argv) {
    TRUE(argc == 2);
    int early = !strcmp(argv[1], "early-cuda"), idle = !strcmp(argv[1], "late-idle");
    CUdeviceptr block = 0, inherited = 0;
    if (!early) {
        start();
        some(10);
        inherited = allocate(5 * MIB);
    }
    for (int i = 0; i < 3; i++) {
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            if (early) {
                start();
                some(20);
            } else if (!strcmp(argv[1], "late-exec")) {
                execl("/bin/sh", "sh", "-c", "ls / | wc -l >/dev/null; echo from a shell; exit 20", (char *)NULL);
            } else if (idle) {
                void *host = malloc(1 << 20);
                memset(host, 1, 1 << 20);
                free(host);
            } else {
                printf("child: allocate %d, free %d\n", cuMemAlloc_v2(&block, 4096), cuMemFree_v2(inherited));
                printf("child: memory info %d\n", cuMemGetInfo_v2((size_t[]){0}, (size_t[]){0}));
            }
            fflush(stdout);
            if (i == 0) exit(10); /* handlers of exit run, in a child with no thread but this one */
            _exit(10 + i);
        }
        int status = 0;
        TRUE(waitpid(child, &status, 0) == child);
        printf("child %d: exit code %d\n", i, WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    }
    if (early) start();
    some(10);
    if (inherited) OK(cuMemFree_v2(inherited));
    printf("# pid %d\n", (int)getpid());
    return 0;
}
