/* Requests that run out of memory, each for a cause of its own. Arguments: `limit`: five of 30 MiB; `pieces`: 60 of
   2 MiB, each second of them goes back, then one of 40 MiB; `large`: one of 4 GiB; `full`: up to a hundred of
   2 MiB. Says how the last went. */
#include "program.h"

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    CUdeviceptr block[60] = {0}, last = 0;
    CUresult result = SUCCESS;
    start();
    if (!strcmp(what, "limit")) {
        for (int i = 0; i < 5 && result == SUCCESS; i++) result = cuMemAlloc_v2(&last, 30 * MIB);
    } else if (!strcmp(what, "pieces")) {
        for (int i = 0; i < 60; i++) OK(cuMemAlloc_v2(&block[i], 2 * MIB));
        for (int i = 0; i < 60; i += 2) OK(cuMemFree_v2(block[i]));
        result = cuMemAlloc_v2(&last, 40 * MIB);
    } else if (!strcmp(what, "large")) {
        OK(cuMemAlloc_v2(&block[0], 10 * MIB));
        result = cuMemAlloc_v2(&last, 4096 * MIB);
    } else {
        for (int i = 0; i < 100 && result == SUCCESS; i++) result = cuMemAlloc_v2(&last, 2 * MIB);
    }
    printf("last: %d\n", result);
    return 0;
}
