/* Threads allocate and free, 32 blocks of each being live, until the file `stop` is in the folder AT; `pid` there has
   the process's number once it has memory. Arguments: threads, then `fork` for a child that does the same as it is
   told by `child`, which has its number. */
#include "program.h"
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>

enum { LIVE = 32 };

static CUcontext context;
static atomic_int stops;
static atomic_ulong made;

static void *run(void *argument) {
    unsigned random = 12345u + 77u * (unsigned)(intptr_t)argument;
    CUdeviceptr live[LIVE] = {0};
    OK(cuCtxSetCurrent(context));
    for (unsigned long n = 0; !stops; n++) {
        random = random * 1103515245u + 12345u;
        CUdeviceptr *slot = &live[(random >> 16) % LIVE];
        if (*slot) OK(cuMemFree_v2(*slot));
        *slot = allocate(1 + (random >> 8) % 300000);
        made++;
        if (n % 512 == 511) sleep_ms(1);
    }
    for (int i = 0; i < LIVE; i++)
        if (live[i]) OK(cuMemFree_v2(live[i]));
    return NULL;
}

static const char *in_folder(const char *name) {
    static char path[4096];
    snprintf(path, sizeof path, "%s/%s", getenv("AT"), name);
    return path;
}

static void say(const char *name, int number) {
    char unfinished[4096];
    snprintf(unfinished, sizeof unfinished, "%s", in_folder("unfinished"));
    FILE *file = fopen(unfinished, "w");
    TRUE(file != NULL);
    fprintf(file, "%d", number);
    fclose(file);
    TRUE(rename(unfinished, in_folder(name)) == 0);
}

int main(int argc, char **argv) {
    pthread_t thread[16];
    int threads = argc > 1 ? atoi(argv[1]) : 1;
    context = start();
    CUdeviceptr first = allocate(1000);
    pid_t child = 0;
    if (argc > 2 && (child = fork()) == 0) {
        pause();
        _exit(0);
    }
    if (child) say("child", child);
    for (intptr_t t = 0; t < threads; t++) OK(pthread_create(&thread[t], NULL, run, (void *)t));
    say("pid", getpid());
    while (access(in_folder("stop"), F_OK) != 0) sleep_ms(2);
    stops = 1;
    for (int t = 0; t < threads; t++) OK(pthread_join(thread[t], NULL));
    OK(cuMemFree_v2(first));
    if (child) kill(child, SIGKILL), waitpid(child, NULL, 0);
    printf("done\n# made %lu\n", (unsigned long)made);
    return 0;
}
