/* Graphs as far as memory goes: allocation nodes, launches, what holds memory and when it goes back. */
#include "conformance.h"
#include <stdio.h>

static long long graph_memory(int attribute) {
    unsigned long long value = 0;
    CUresult result = cuDeviceGetGraphMemAttribute(0, attribute, &value);
    return result ? -result : (long long)value;
}
static void memory(const char *when) {
    number(graph_memory(0), "graph.memory.%s.used", when);
    number(graph_memory(2), "graph.memory.%s.reserved", when);
}

static void captured(CUstream s) {
    CUgraph graph = NULL, copy = NULL, parent = NULL;
    CUgraphExec exec = NULL, second = NULL;
    CUgraphNode node = NULL, nodes[8];
    CUdeviceptr p = 0, q = 0;
    size_t count = 8;
    int type = -1;
    memory("at_start");
    cuStreamBeginCapture_v2(s, 0);
    code(cuMemAllocAsync(&p, 4 * MIB, s), "graph.captured.alloc");
    code(cuMemAllocAsync(&q, 1000, s), "graph.captured.alloc_small");
    number(p != 0 && p != q, "graph.captured.address_known");
    code(cuMemsetD8Async(p, 3, 4 * MIB, s), "graph.captured.memset");
    code(cuMemFreeAsync(p, s), "graph.captured.free");
    code(cuMemFreeAsync(q, s), "graph.captured.free_small");
    code(cuStreamEndCapture(s, &graph), "graph.captured.end");
    code(cuGraphGetNodes(graph, nodes, &count), "graph.captured.nodes.code");
    number((long long)count, "graph.captured.nodes");
    cuGraphNodeGetType(nodes[0], &type);
    number(type, "graph.captured.first_node_type");
    AllocNodeParams got = {0};
    if (type == 10) {
        code(cuGraphMemAllocNodeGetParams(nodes[0], &got), "graph.captured.alloc_params.code");
        number(got.pointer == p, "graph.captured.alloc_params.pointer");
        number((long long)got.bytes, "graph.captured.alloc_params.bytes");
    }
    memory("captured");
    code(cuMemFree_v2(p), "graph.captured.cuMemFree_before_launch");
    code(cuMemFreeAsync(p, s), "graph.captured.cuMemFreeAsync_before_launch");
    code(cuPointerGetAttribute(&type, 2, p), "graph.captured.pointer_attribute_before_launch");
    code(cuGraphClone(&copy, graph), "graph.captured.clone");
    cuGraphCreate(&parent, 0);
    code(cuGraphAddChildGraphNode(&node, parent, NULL, 0, graph), "graph.captured.as_child");
    code(cuGraphInstantiateWithFlags(&exec, graph, 0), "graph.captured.instantiate");
    code(cuGraphInstantiateWithFlags(&second, graph, 0), "graph.captured.instantiate_twice");
    memory("instantiated");
    code(cuGraphLaunch(exec, s), "graph.captured.launch");
    cuStreamSynchronize(s);
    code(cuPointerGetAttribute(&type, 2, p), "graph.captured.pointer_attribute_after_launch");
    memory("launched");
    code(cuGraphLaunch(exec, s), "graph.captured.launch_twice");
    cuStreamSynchronize(s);
    code(cuGraphLaunch(exec, NULL), "graph.captured.launch_on_legacy");
    cuCtxSynchronize();
    code(cuDeviceGraphMemTrim(0), "graph.trim.code");
    memory("trimmed");
    code(cuGraphLaunch(exec, s), "graph.captured.launch_after_trim");
    code(cuGraphDestroy(graph), "graph.captured.destroy_graph_with_exec_live");
    code(cuGraphExecDestroy(exec), "graph.captured.destroy_exec_busy");
    cuCtxSynchronize();
    memory("exec_destroyed");
    if (second) code(cuGraphExecDestroy(second), "graph.captured.destroy_second");
    if (copy) cuGraphDestroy(copy);
    cuGraphDestroy(parent);
    cuDeviceGraphMemTrim(0);
    memory("all_trimmed");
}

/* A graph whose allocation outlives the launch. */
static void leaking(CUstream s, unsigned long long flags, const char *name) {
    CUgraph graph = NULL;
    CUgraphExec exec = NULL;
    CUgraphNode node = NULL, set = NULL;
    AllocNodeParams params = {.pool = {.type = 1, .location = {1, 0}}, .bytes = 4 * MIB};
    cuGraphCreate(&graph, 0);
    code(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &params), "graph.%s.alloc_node", name);
    number(params.pointer != 0, "graph.%s.address_known", name);
    MemsetNodeParams memset_params = {.dst = params.pointer, .value = 7, .element = 1, .width = 4096, .height = 1};
    CUcontext context = NULL;
    cuCtxGetCurrent(&context);
    code(cuGraphAddMemsetNode(&set, graph, &node, 1, &memset_params, context), "graph.%s.memset_node", name);
    code(cuGraphInstantiateWithFlags(&exec, graph, flags), "graph.%s.instantiate", name);
    code(cuGraphLaunch(exec, s), "graph.%s.launch", name);
    cuStreamSynchronize(s);
    memory(name);
    unsigned char byte = 0;
    code(cuMemcpyDtoH_v2(&byte, params.pointer, 1), "graph.%s.read", name);
    number(byte, "graph.%s.byte", name);
    CUmemoryPool pool = (CUmemoryPool)1;
    cuPointerGetAttribute(&pool, 17, params.pointer);
    number(pool == NULL, "graph.%s.pointer_pool_null", name);
    size_t size = 0;
    CUdeviceptr base = 0;
    code(cuMemGetAddressRange_v2(&base, &size, params.pointer + 5), "graph.%s.range.code", name);
    number((long long)size, "graph.%s.range.size", name);
    code(cuGraphLaunch(exec, s), "graph.%s.launch_again_unfreed", name);
    cuStreamSynchronize(s);
    code(cuMemFree_v2(params.pointer), "graph.%s.cuMemFree", name);
    code(cuMemFree_v2(params.pointer), "graph.%s.cuMemFree_twice", name);
    code(cuGraphLaunch(exec, s), "graph.%s.launch_again_freed", name);
    code(cuMemFreeAsync(params.pointer, s), "graph.%s.cuMemFreeAsync", name);
    cuStreamSynchronize(s);
    cuGraphLaunch(exec, s);
    cuStreamSynchronize(s);
    code(cuGraphDestroyNode(set), "graph.%s.destroy_node", name);
    code(cuGraphExecDestroy(exec), "graph.%s.destroy_exec_unfreed", name);
    code(cuGraphDestroy(graph), "graph.%s.destroy_graph", name);
    code(cuMemcpyDtoH_v2(&byte, params.pointer, 1), "graph.%s.read_after_destroy", name);
    code(cuMemFree_v2(params.pointer), "graph.%s.cuMemFree_after_destroy", name);
    cuDeviceGraphMemTrim(0);
    memory("after_leak");
}

static void nodes(void) {
    CUgraph graph = NULL;
    CUgraphNode alloc = NULL, release = NULL;
    AllocNodeParams params = {.pool = {.type = 1, .location = {1, 0}}, .bytes = 1000}, bad = params;
    CUdeviceptr p = 0, got = 0;
    cuGraphCreate(&graph, 0);
    bad.bytes = 0;
    code(cuGraphAddMemAllocNode(&alloc, graph, NULL, 0, &bad), "graph.node.alloc_0");
    bad.bytes = (size_t)1 << 44;
    code(cuGraphAddMemAllocNode(&alloc, graph, NULL, 0, &bad), "graph.node.alloc_16TiB");
    bad.bytes = 1000, bad.pool.location.id = 99;
    code(cuGraphAddMemAllocNode(&alloc, graph, NULL, 0, &bad), "graph.node.alloc_bad_device");
    code(cuGraphAddMemAllocNode(&alloc, graph, NULL, 0, &params), "graph.node.alloc");
    code(cuGraphAddMemFreeNode(&release, graph, &alloc, 1, params.pointer), "graph.node.free");
    code(cuGraphMemFreeNodeGetParams(release, &got), "graph.node.free_params.code");
    number(got == params.pointer, "graph.node.free_params.pointer");
    CUgraphNode again = NULL;
    code(cuGraphAddMemFreeNode(&again, graph, &alloc, 1, params.pointer), "graph.node.free_twice");
    cuMemAlloc_v2(&p, 1000);
    code(cuGraphAddMemFreeNode(&again, graph, NULL, 0, p), "graph.node.free_of_cuMemAlloc");
    cuMemFree_v2(p);
    code(cuGraphDestroyNode(alloc), "graph.node.destroy_alloc");
    cuGraphDestroy(graph);
    code(cuGraphCreate(NULL, 0), "graph.create.nowhere");
    code(cuGraphCreate(&graph, 1), "graph.create.flags_1");
    code(cuGraphDestroy(NULL), "graph.destroy_null");
    code(cuGraphLaunch(NULL, NULL), "graph.launch_null");
}

static void ordering(CUstream s) {
    CUgraph graph = NULL;
    CUgraphExec exec = NULL;
    CUgraphNode node = NULL;
    CUcontext context = NULL;
    CUdeviceptr p = 0;
    cuCtxGetCurrent(&context);
    cuMemAlloc_v2(&p, 4096);
    CUstream side = side_stream();
    CUevent event = plain_event(), done = plain_event();
    MemsetNodeParams params = {.dst = p, .value = 7, .element = 1, .width = 4096, .height = 1};
    cuGraphCreate(&graph, 0);
    cuGraphAddMemsetNode(&node, graph, NULL, 0, &params, context);
    cuGraphInstantiateWithFlags(&exec, graph, 0);
    slow(side);
    cuCtxRecordEvent(context, event);
    cuCtxWaitEvent(context, event);
    cuGraphLaunch(exec, s);
    cuEventRecord(done, s);
    number(after_slow(done), "graph.launch_after_context_wait.ordered");
    cuCtxSynchronize();
    slow(side);
    cuGraphLaunch(exec, s);
    cuEventRecord(done, s);
    number(after_slow(done), "graph.launch_beside_side_work.ordered");
    cuCtxSynchronize();
    CUgraph graph2 = NULL;
    CUgraphExec exec2 = NULL;
    cuGraphCreate(&graph2, 0);
    WAITS(side, "graph.instantiate", cuGraphInstantiateWithFlags(&exec2, graph, 0));
    WAITS(side, "graph.exec_destroy", cuGraphExecDestroy(exec2));
    code(cuMemFree_v2(p), "graph.free_of_memory_in_live_graph");
    cuGraphExecDestroy(exec), cuGraphDestroy(graph), cuGraphDestroy(graph2);
}

void section_graph(void) {
    start();
    CUstream s = side_stream();
    nodes();
    captured(s);
    leaking(s, 0, "kept");
    leaking(s, 1, "auto_free");
    ordering(s);
}
