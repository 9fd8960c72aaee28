/* What other programs, and the program itself, do to descriptors and to the files beside it, while it allocates.
   Arguments: what (`nothing`, `close`, `truncate`, `lengthen`, `remove`, `rename`, `mask`, `own`), allocations after
   it, and milliseconds between it and them. Prints what a run without a trace prints. */
#include "program.h"
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum { FILES = 8 };

static void pairs(int count) {
    for (int i = 0; i < count; i++) {
        CUdeviceptr block = allocate(1000 + (size_t)(i % 50) * 512);
        OK(cuMemFree_v2(block));
    }
}

/* A program that lets go of every descriptor it does not know, and opens files of its own. */
static void close_all(int *files) {
    for (int fd = 3; fd < 1024; fd++) close(fd);
    for (int i = 0; i < FILES; i++) {
        char name[32];
        snprintf(name, sizeof name, "data.%d", i);
        files[i] = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);
        TRUE(files[i] >= 0);
    }
}

static sigjmp_buf back;
static volatile sig_atomic_t said, is_ours;

static void on_bus(int signal, siginfo_t *info, void *context) {
    (void)context;
    said = info->si_code;
    is_ours = signal == SIGBUS;
    siglongjmp(back, 1);
}

/* A fault in a mapping of the program's own, beyond its file's end: the handler that was there before the trace. */
static void own_fault(void) {
    int fd = open("own", O_RDWR | O_CREAT | O_TRUNC, 0644);
    TRUE(fd >= 0 && ftruncate(fd, 4096) == 0);
    char *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    TRUE(at != MAP_FAILED && ftruncate(fd, 0) == 0);
    for (int i = 0; i < 3; i++) {
        if (sigsetjmp(back, 1) == 0) *(volatile char *)at = 1;
        printf("SIGBUS %d code %d\n", (int)is_ours, (int)said);
        said = is_ours = 0;
    }
}

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    const char *what = argv[1];
    int files[FILES] = {0};
    if (!strcmp(what, "own") || !strcmp(what, "raise") || !strcmp(what, "fault")) {
        struct sigaction action = {0};
        action.sa_sigaction = on_bus;
        action.sa_flags = SA_SIGINFO;
        if (!strcmp(what, "own")) TRUE(sigaction(SIGBUS, &action, NULL) == 0);
    }
    start();
    pairs(100);
    sleep_ms(30);
    if (!strcmp(what, "close")) close_all(files);
    char name[64], other[80];
    snprintf(name, sizeof name, "%d.trace", (int)getpid());
    snprintf(other, sizeof other, "%s.moved", name);
    /* Without a trace all of these fail. */
    if (!strcmp(what, "truncate")) (void)!truncate(name, 0);
    if (!strcmp(what, "halve")) (void)!truncate(name, 300000);
    if (!strcmp(what, "remove")) unlink(name);
    if (!strcmp(what, "rename")) {
        if (rename(name, other) == 0) close(open(name, O_RDWR | O_CREAT, 0600));
    }
    if (!strcmp(what, "own")) own_fault();
    if (!strcmp(what, "fault")) {
        own_fault();
        return 1;
    }
    if (!strcmp(what, "raise")) {
        raise(SIGBUS);
        return 1;
    }
    sleep_ms(atol(argv[3]));
    pairs(atoi(argv[2]));
    sleep_ms(20);
    if (!strcmp(what, "close"))
        for (int i = 0; i < FILES; i++) {
            struct stat stat;
            TRUE(write(files[i], "data", 4) == 4 && fstat(files[i], &stat) == 0);
            printf("data.%d: %ld bytes\n", i, (long)stat.st_size);
        }
    puts("done");
    return 0;
}
