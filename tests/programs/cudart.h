/* The runtime functions that the test programs call. */
#ifndef CUDART_H
#define CUDART_H
#include <stddef.h>
int cudaMalloc(void **, size_t);
int cudaFree(void *);
int cudaSetDevice(int);
int cudaGetDevice(int *);
int cudaMemGetInfo(size_t *, size_t *);
int cudaMemset(void *, int, size_t);
int cudaMemcpy(void *, const void *, size_t, int);
int cudaDeviceSynchronize(void);
int cudaRuntimeGetVersion(int *);
int cudaGetLastError(void);
#endif
