/* Allocates and frees on one thread at a rate, 64 blocks being live; sizes follow from the number of the allocation.
   Arguments: allocations, events a second (0: as fast as it can), then one of
     end       ends in an ordinary way
     rest      keeps 5 MiB, is quiet for three seconds, and ends after an event more
     kill N US is killed US microseconds after its Nth allocation
     fork      forks halfway: the child calls the driver and records, in vain, and ends by exit
     spawn ... forks, and the child becomes this program; waits for it
     exec ...  becomes this program
   TRUTH may name a file: two words, allocations and frees that have returned. */
#include "program.h"
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { LIVE = 64 };

static uint64_t now_ns(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* One to one on 20 bits: the size determines the number, modulo 2^20. */
static size_t size_of(uint64_t number) { return 1 + (size_t)(number * 0x9e375u & 0xfffff); }

static _Atomic uint64_t nobody[2], *truth = nobody;

static void open_truth(void) {
    const char *path = getenv("TRUTH");
    if (!path) return;
    int file = open(path, O_RDWR | O_CREAT, 0600);
    TRUE(file >= 0 && ftruncate(file, sizeof nobody) == 0);
    truth = mmap(NULL, sizeof nobody, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    TRUE(truth != MAP_FAILED);
}

static void *killer(void *argument) {
    char **numbers = argument;
    while (truth[0] < strtoull(numbers[0], NULL, 10)) usleep(100);
    usleep((useconds_t)atol(numbers[1]));
    kill(getpid(), SIGKILL);
    return NULL;
}

static void pairs(uint64_t first, uint64_t count, uint64_t rate) {
    CUdeviceptr live[LIVE] = {0};
    uint64_t begin = now_ns(CLOCK_MONOTONIC), events = 0;
    for (uint64_t number = first; number < first + count + LIVE; number++) {
        CUdeviceptr *slot = &live[number % LIVE];
        if (*slot) {
            OK(cuMemFree_v2(*slot));
            *slot = 0;
            truth[1]++;
            events++;
        }
        if (number < first + count) {
            *slot = allocate(size_of(number));
            truth[0]++;
            events++;
        }
        /* Each millisecond what is due. */
        while (rate && events >= (now_ns(CLOCK_MONOTONIC) - begin) / 1000000 * rate / 1000 + rate / 1000) sleep_ms(1);
    }
}

/* CPU time of the thread of this name, ms. */
static long thread_ms(const char *name) {
    char path[300], line[512];
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *task; tasks && (task = readdir(tasks));) {
        snprintf(path, sizeof path, "/proc/self/task/%s/stat", task->d_name);
        FILE *file = fopen(path, "r");
        if (!file) continue;
        char *got = fgets(line, sizeof line, file), *end = got ? strrchr(line, ')') : NULL;
        fclose(file);
        unsigned long user = 0, system = 0;
        if (end && strstr(line, name) && sscanf(end + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system) == 2)
            return (long)(user + system) * 1000 / sysconf(_SC_CLK_TCK);
    }
    return -1;
}

static int child_of(pid_t child) {
    int status = 0;
    TRUE(waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int main(int argc, char **argv) {
    TRUE(argc >= 4);
    uint64_t count = strtoull(argv[1], NULL, 10), rate = strtoull(argv[2], NULL, 10);
    const char *end = argv[3];
    start();
    open_truth();
    size_t before = driver_free();
    if (!strcmp(end, "kill")) {
        pthread_t thread;
        pthread_create(&thread, NULL, killer, argv + 4);
    }
    pairs(0, count / 2, rate);
    if (!strcmp(end, "fork")) {
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            CUdeviceptr block = 0;
            for (int i = 0; i < 20000; i++)
                if (cuMemAlloc_v2(&block, 4096) == SUCCESS) cuMemFree_v2(block);
            exit(0);
        }
        printf("child: %d\n", child_of(child));
    }
    pairs(count / 2, count - count / 2, rate);
    printf("# pid %d spool_ms %ld all_ms %ld\n", (int)getpid(), thread_ms("(gpushim-spool)"), (long)(now_ns(CLOCK_PROCESS_CPUTIME_ID) / 1000000));
    if (!strcmp(end, "kill")) pause();
    if (!strcmp(end, "rest")) {
        allocate(5 * MIB);
        sleep_ms(3000);
        printf("# held %zu\n", before - driver_free());
        allocate(1);
        sleep_ms(5);
    }
    if (!strcmp(end, "exec")) execv(argv[4], argv + 4);
    if (!strcmp(end, "spawn")) {
        pid_t child = fork();
        if (child == 0) {
            execv(argv[4], argv + 4);
            _exit(127);
        }
        printf("child: %d\n", child_of(child));
    }
    printf("done\n");
    return 0;
}
