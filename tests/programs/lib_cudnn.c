/* A library whose names begin like the driver's, one of them exactly like one of its functions. */
#include <stddef.h>
static int depth;
int cudnnCreate(void) { return 100 + depth++; }
int cublasCreate_v2(void) { return 200; }
int cuMemcached(void) { return 300; }
int cu(void) { return 400; }
/* Not the driver's: a caller that asks this library for it wants this one. */
int cuMemAlloc_v2(void *address, size_t bytes) { (void)address; return 500 + (int)bytes; }
