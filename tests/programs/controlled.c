/* A program that pauses its recording and watches its memory: `pause`, `peak`, `tensors` or `contexts`. */
#include "program.h"
#include "../../include/gpushim.h"
#pragma weak gpushim_pause
#pragma weak gpushim_record
#pragma weak gpushim_is_recording
#pragma weak gpushim_usage
#pragma weak gpushim_reset_peak
#pragma weak gpushim_stats
#pragma weak gpushim_version

static void told(const char *when, int kind) {
    unsigned long long now = 1, peak = 1;
    int result = gpushim_usage(kind, 0, &now, &peak);
    printf("# %s %d %llu %llu\n", when, result, now, peak);
}

static void paused(void) {
    CUdeviceptr before = allocate(1000), kept = allocate(2000);
    printf("# recording %d\n", gpushim_is_recording());
    gpushim_pause();
    gpushim_pause();
    printf("# recording %d\n", gpushim_is_recording());
    CUdeviceptr within = allocate(3000), beyond = allocate(4000);
    OK(cuMemFree_v2(before));
    OK(cuMemFree_v2(within));
    CUdeviceptr async = 0;
    OK(cuMemAllocAsync(&async, 5000, 0));
    void *host = NULL;
    OK(cuMemAllocHost_v2(&host, 6000));
    gpushim_record();
    /* Made in the pause, freed after it. */
    OK(cuMemFree_v2(beyond));
    OK(cuMemFreeAsync(async, 0));
    OK(cuMemFreeHost(host));
    CUdeviceptr after = allocate(7000);
    OK(cuMemFree_v2(after));
    OK(cuMemFree_v2(kept));
    allocate(8000);
    OK(cuCtxSynchronize());
}

static void peaks(void) {
    CUdeviceptr early = allocate(100000);
    told("first", GPUSHIM_DEVICE);
    CUdeviceptr second = allocate(50000);
    OK(cuMemFree_v2(early));
    told("second", GPUSHIM_DEVICE);
    gpushim_reset_peak();
    told("reset", GPUSHIM_DEVICE);
    gpushim_pause();
    CUdeviceptr third = allocate(1000);
    gpushim_record();
    OK(cuMemFree_v2(third));
    told("third", GPUSHIM_DEVICE);
    void *host = NULL;
    OK(cuMemAllocHost_v2(&host, 6000));
    told("host", GPUSHIM_HOST);
    OK(cuMemFreeHost(host));
    told("host", GPUSHIM_HOST);
    OK(cuMemFree_v2(second));
    unsigned long long figures[3] = {9, 9, 9};
    printf("# figures %zu\n", gpushim_stats(figures, 2));
    printf("# stats %llu %llu %llu\n", figures[0], figures[1], figures[2]);
    printf("# refused %d %d\n", gpushim_usage(77, 0, NULL, NULL), gpushim_usage(1, -1, NULL, NULL));
    printf("# version %s\n", gpushim_version());
}

/* A context that ends takes what was allocated in a pause with it, too. */
static void contexts(void) {
    CUcontext context = NULL;
    gpushim_reset_peak();
    OK(cuCtxCreate_v2(&context, 0, 0));
    allocate(1 << 20);
    gpushim_pause();
    allocate(2 << 20);
    gpushim_record();
    told("with", GPUSHIM_DEVICE);
    OK(cuCtxDestroy_v2(context));
    told("without", GPUSHIM_DEVICE);
}

int main(int argc, char **argv) {
    TRUE(argc == 2);
    start();
    if (!gpushim_usage) return printf("# there 0\n"), 0;
    if (!strcmp(argv[1], "pause")) paused();
    if (!strcmp(argv[1], "peak")) peaks();
    if (!strcmp(argv[1], "contexts")) contexts();
    return 0;
}
