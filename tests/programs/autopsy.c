/* Runs out of memory, in the way that the argument says; what the program sees of it goes to the output. With
   `recovered` it gives back all it has and asks again at once, as caches do. */
#include "program.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

static CUdeviceptr blocks[64];
static volatile sig_atomic_t children;

static void of_child(int signal) {
    (void)signal;
    children++;
}

__attribute__((noinline)) static CUresult load_batch(int *number) {
    CUresult result = SUCCESS;
    while (result == SUCCESS && *number < 64) result = cuMemAlloc_v2(&blocks[(*number)++], 16 * MIB);
    return result;
}

static void *in_thread(void *number) {
    CUcontext context = NULL;
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    printf("thread: %d\n", load_batch(number));
    return NULL;
}

/* Until the command has had time to say something. */
static void rest(int ms) {
    struct timespec left = {ms / 1000, ms % 1000 * 1000000L};
    while (nanosleep(&left, &left) != 0) {}
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    int number = 0, file = -1;
    if (!strcmp(how, "closed")) {
        close(2);
        start();
        OK(cuMemAlloc_v2(&blocks[number++], 2 * MIB));
        file = dup2(open("data", O_CREAT | O_WRONLY, 0600), 2);
    } else {
        start();
    }
    signal(SIGCHLD, of_child);
    if (!strcmp(how, "thread")) {
        pthread_t thread;
        TRUE(pthread_create(&thread, NULL, in_thread, &number) == 0);
        TRUE(pthread_join(thread, NULL) == 0);
    } else {
        printf("last: %d\n", load_batch(&number));
    }
    if (!strcmp(how, "recovered")) {
        for (int i = 0; i < number - 1; i++) OK(cuMemFree_v2(blocks[i]));
        OK(cuMemAlloc_v2(&blocks[0], 16 * MIB));
        rest(1000);
    }
    if (!strcmp(how, "twice")) {
        for (int i = 0; i < 3; i++) {
            rest(700);
            printf("last: %d\n", load_batch(&number));
        }
    }
    if (!strcmp(how, "waits") || !strcmp(how, "closed")) {
        rest(1500);
        pid_t found = waitpid(-1, NULL, WNOHANG);
        printf("wait: %d %d, signals: %d\n", (int)found, errno == ECHILD, (int)children);
        printf("written: %ld\n", file >= 0 ? (long)lseek(file, 0, SEEK_END) : 0L);
    }
    if (!strcmp(how, "forks")) {
        pid_t child = fork();
        if (child == 0) exit(5);
        int status = 0;
        TRUE(waitpid(-1, &status, 0) == child);
        printf("child: %d\n", WEXITSTATUS(status));
    }
    fflush(stdout);
    if (!strcmp(how, "kill")) {
        rest(1500);
        raise(SIGKILL);
    }
    if (!strcmp(how, "abort")) {
        rest(30);
        abort();
    }
    if (!strcmp(how, "_exit")) _exit(4);
    return 9;
}
