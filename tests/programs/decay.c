/* Frees blocks and then asks for nothing. Argument: ms to wait. Notes the driver's own free bytes. */
#include "program.h"

int main(int argc, char **argv) {
    CUdeviceptr block[16];
    start();
    size_t before = driver_free();
    for (int i = 0; i < 16; i++) block[i] = allocate((size_t)(1 + i) * MIB);
    for (int i = 0; i < 16; i++) OK(cuMemFree_v2(block[i]));
    size_t cached = before - driver_free();
    sleep_ms(argc > 1 ? atol(argv[1]) : 500);
    printf("# cached %zu\n# left %zu\n", cached, before - driver_free());
    CUdeviceptr again = allocate(1 * MIB);
    OK(cuMemFree_v2(again));
    return 0;
}
