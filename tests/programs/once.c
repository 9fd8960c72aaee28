/* One allocation, some output, and an exit code of its own. */
#include "program.h"

int main(void) {
    start();
    CUdeviceptr block = allocate(12345);
    OK(cuMemFree_v2(block));
    printf("the program's output\n");
    fprintf(stderr, "the program's complaint\n");
    return 7;
}
