/* A thread of real-time priority and two normal ones share a processor, and all allocate and free: how long the real-time
   thread's longest pair took. Argument: milliseconds. Exit code 3: this user may not have real-time threads. */
#define _GNU_SOURCE
#include "program.h"
#include <sched.h>
#include <time.h>

static CUcontext context;
static volatile int over;
static volatile long pairs;

static double now(void) {
    struct timespec time;
    TRUE(clock_gettime(CLOCK_MONOTONIC, &time) == 0);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* All on one processor of those that this process may use. */
static void share_a_processor(void) {
    cpu_set_t all, one;
    int first = 0;
    TRUE(sched_getaffinity(0, sizeof all, &all) == 0);
    while (!CPU_ISSET(first, &all)) first++;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    TRUE(sched_setaffinity(0, sizeof one, &one) == 0);
}

static void *normal(void *unused) {
    OK(cuCtxSetCurrent(context));
    while (!over) {
        OK(cuMemFree_v2(allocate(4096)));
        pairs++;
    }
    return unused;
}

static void *real_time(void *seconds) {
    struct sched_param priority = {50};
    double worst = 0, end = now() + *(double *)seconds;
    long done = 0;
    if (sched_setscheduler(0, SCHED_FIFO, &priority)) exit(3);
    OK(cuCtxSetCurrent(context));
    while (now() < end) {
        /* Wakes at any point of what the normal threads do, also while they hold a lock. */
        struct timespec pause = {0, 137000 + done++ % 97 * 1000};
        nanosleep(&pause, NULL);
        double begun = now();
        size_t free = 0, total = 0;
        CUdeviceptr block = allocate((size_t)(1 + done % 50) << 20);
        OK(cuMemGetInfo_v2(&free, &total));
        OK(cuMemFree_v2(block));
        double took = now() - begun;
        if (took > worst) worst = took;
    }
    over = 1;
    printf("# worst %ld\n# done %ld\n", (long)(worst * 1e6), done);
    return NULL;
}

int main(int argc, char **argv) {
    double seconds = argc > 1 ? atof(argv[1]) / 1000 : 1;
    pthread_t thread[3];
    context = start();
    share_a_processor();
    for (int i = 0; i < 2; i++) OK(pthread_create(&thread[i], NULL, normal, NULL));
    OK(pthread_create(&thread[2], NULL, real_time, &seconds));
    for (int i = 2; i >= 0; i--) OK(pthread_join(thread[i], NULL));
    TRUE(pairs > 0);
    return 0;
}
