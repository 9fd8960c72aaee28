/* Calls through each variant of a name with the arguments of the version that was asked for. A variant of another
   version reads registers that mean something else and gives itself away in the results. */
#include "program.h"

static ProcAddress *get;

static void *variant(const char *name, int version) {
    void *found = NULL;
    int result = get(name, &found, version, 0, NULL);
    printf("%s %d: %d %s\n", name, version, result, symbol_at(found));
    return result == SUCCESS ? found : NULL;
}

static void made(CUresult result, CUcontext context) {
    unsigned api = 0, flags = 0;
    printf("  gave %d\n", result);
    if (result != SUCCESS) return;
    TRUE(cuCtxGetApiVersion(context, &api) == SUCCESS);
    TRUE(cuCtxGetFlags(&flags) == SUCCESS);
    printf("  api version %u, flags %u\n", api, flags);
    CUdeviceptr block = allocate(1 << 20);
    OK(cuMemFree_v2(block));
    OK(cuCtxDestroy_v2(context));
}

static void contexts(void) {
    CUcontext context = NULL;
    void *f;
    if ((f = variant("cuCtxCreate", 2000))) {
        CUresult result = ((CUresult(*)(CUcontext *, unsigned, CUdevice))f)(&context, 4, 0);
        made(result, context);
    }
    if ((f = variant("cuCtxCreate", 3020))) {
        CUresult result = ((CUresult(*)(CUcontext *, unsigned, CUdevice))f)(&context, 4, 0);
        made(result, context);
    }
    if ((f = variant("cuCtxCreate", 11040))) {
        CUresult result = ((CUresult(*)(CUcontext *, void *, int, unsigned, CUdevice))f)(&context, NULL, 0, 4, 0);
        made(result, context);
    }
    if ((f = variant("cuCtxCreate", 12050))) {
        CUresult result = ((CUresult(*)(CUcontext *, void *, unsigned, CUdevice))f)(&context, NULL, 4, 0);
        made(result, context);
    }
    printf("error of a wrong device: %d\n", cuCtxCreate_v2(&context, 0, 99));
}

/* From 13.0 it takes a context, which need not be the current one. */
static void synchronize(CUcontext other) {
    CUcontext own = NULL, popped = NULL;
    CUdeviceptr block = allocate(4096);
    CUstream side = side_stream();
    OK(cuCtxCreate_v2(&own, 0, 0));
    for (int version = 12000; version <= 13000; version += 1000) {
        void *f = variant("cuCtxSynchronize", version);
        OK(work(side, block, 4096, 1, 100000000));
        if (f && version < 13000) printf("  gave %d\n", ((CUresult(*)(void))f)());
        if (f && version >= 13000) printf("  gave %d\n", ((CUresult(*)(CUcontext))f)(other));
        printf("  the other context is done: %d\n", cuStreamQuery(side) == SUCCESS);
    }
    OK(cuCtxPopCurrent_v2(&popped));
    OK(cuCtxDestroy_v2(own));
    OK(cuCtxSetCurrent(other));
    OK(cuCtxSynchronize());
    OK(cuMemFree_v2(block));
}

/* From 13.0 the plain names mean the forms with edge data and locations; before, and in dlsym, those without. */
static void changed_in_13(CUcontext other) {
    CUgraph graph = NULL;
    CUgraphNode first = NULL, second = NULL;
    size_t nodes = 0;
    void *f;
    for (int version = 12000; version <= 13000; version += 1000) {
        OK(cuGraphCreate(&graph, 0));
        OK(cuGraphAddEmptyNode(&first, graph, NULL, 0));
        OK(cuGraphAddEmptyNode(&second, graph, NULL, 0));
        f = variant("cuGraphAddDependencies", version);
        if (f && version < 13000)
            printf("  gave %d\n", ((CUresult(*)(CUgraph, CUgraphNode *, CUgraphNode *, size_t))f)(graph, &first, &second, 1));
        if (f && version >= 13000)
            printf("  gave %d\n",
                   ((CUresult(*)(CUgraph, CUgraphNode *, CUgraphNode *, void *, size_t))f)(graph, &first, &second, NULL, 1));
        /* The node parameters of cuGraphAddNode: a type, three ints, 232 bytes of union, 8 more. Type 5: empty. */
        struct { int type, reserved[3]; long long rest[30]; } empty = {.type = 5};
        CUgraphNode third = NULL;
        f = variant("cuGraphAddNode", version < 13000 ? 12020 : version);
        if (f && version < 13000)
            printf("  gave %d\n",
                   ((CUresult(*)(CUgraphNode *, CUgraph, CUgraphNode *, size_t, void *))f)(&third, graph, &first, 1, &empty));
        if (f && version >= 13000)
            printf("  gave %d\n", ((CUresult(*)(CUgraphNode *, CUgraph, CUgraphNode *, void *, size_t, void *))f)(
                                      &third, graph, &first, NULL, 1, &empty));
        OK(cuGraphGetNodes(graph, NULL, &nodes));
        printf("  nodes %zu\n", nodes);
        OK(cuGraphDestroy(graph));
    }
    f = dlsym(driver, "cuGraphAddNode");
    printf("dlsym cuGraphAddNode: %s\n", symbol_at(f));
    synchronize(other);
    /* Before 13.0 the last argument was a device ordinal, now it is a location. */
    f = variant("cuMemPrefetchAsync", 8000);
    f = variant("cuMemPrefetchAsync", 13000);
}

int main(int argc, char **argv) {
    CUcontext context = start();
    *(void **)&get = dlsym(driver, "cuGetProcAddress_v2");
    TRUE(argc == 2 && get);
    if (!strcmp(argv[1], "contexts")) contexts();
    else changed_in_13(context);
    return 0;
}
