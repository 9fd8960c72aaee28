/* What a process has in the variables of frameworks: by getenv, and by main's third argument. With an argument it
   starts itself again that many times, by exec in a child. Uses device memory, so that there is a trace. */
#include "program.h"
#include <sys/wait.h>

static const char *const names[] = {"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "XLA_PYTHON_CLIENT_ALLOCATOR",
                                    "XLA_PYTHON_CLIENT_PREALLOCATE", "TF_GPU_ALLOCATOR"};

static const char *in(char **list, const char *name) {
    size_t length = strlen(name);
    for (; *list; list++)
        if (!strncmp(*list, name, length) && (*list)[length] == '=') return *list + length + 1;
    return NULL;
}

int main(int argc, char **argv, char **environment) {
    int generations = argc > 1 ? atoi(argv[1]) : 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *got = getenv(names[i]), *given = in(environment, names[i]);
        TRUE(!got == !given && (!got || !strcmp(got, given)));
        if (got) printf("%s=%s\n", names[i], got);
    }
    fflush(stdout);
    start();
    OK(cuMemFree_v2(allocate(1000)));
    printf("# process %d\n", (int)getpid());
    fflush(stdout);
    if (generations > 0) {
        char left[16];
        int status = 1;
        pid_t child = fork();
        if (child == 0) {
            snprintf(left, sizeof left, "%d", generations - 1);
            execl(argv[0], argv[0], left, (char *)NULL);
            _exit(9);
        }
        waitpid(child, &status, 0);
        TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    return 0;
}
