/* A library linked with one cudart. */
#include "cudart.h"
int user_version(void) {
    int version = -1;
    return cudaRuntimeGetVersion(&version) ? -2 : version;
}
int user_works(size_t bytes, int value) {
    void *block = 0;
    unsigned char back = 0;
    int result = cudaMalloc(&block, bytes);
    if (result) return result;
    if ((result = cudaMemset(block, value, bytes))) return result;
    if ((result = cudaMemcpy(&back, (char *)block + bytes - 1, 1, 2))) return result;
    return back == value ? cudaFree(block) : -3;
}
