/* The graphs of `stream_stress`: captured, launched beside everything else, destroyed. */
#ifndef STREAM_GRAPHS_H
#define STREAM_GRAPHS_H
#include "stream_worker.h"

/* Gives up what a launch left allocated. */
static void drop_left(Worker *w, Graph *graph) {
    if (!graph->is_live) return;
    verify(w, &graph->left);
    if (one_in(w, 4)) {
        OK(cuStreamSynchronize(on(w, graph->left.stream)));
        OK(cuMemFree_v2(graph->left.address));
    } else {
        if (one_in(w, 3)) move(w, &graph->left, pick(w, 1 << graph->device));
        OK(free_on(w, &graph->left));
    }
    graph->is_live = 0;
}

static void drop_graph(Worker *w, Graph *graph) {
    drop_left(w, graph);
    enter(w, graph->device);
    OK(cuGraphExecDestroy(graph->exec));
    graph->exec = NULL;
    if (graph->held >= 0) w->block[graph->held].held = 0;
}

/* Frees what a launch without success has allocated, if anything. */
static void undo(Worker *w, Graph *graph, int stream) {
    for (int i = 0; i < graph->count; i++) {
        CUresult result = cuMemFreeAsync(graph->all[i], on(w, stream));
        TRUE(result == SUCCESS || result == INVALID_VALUE);
    }
    graph->is_live = 0;
}

static void launch(Worker *w, Graph *graph) {
    int stream = pick(w, 1 << graph->device);
    Block *held = graph->held >= 0 ? &w->block[graph->held] : NULL;
    if (!graph->frees_itself || one_in(w, 2)) drop_left(w, graph);
    else if (graph->is_live) verify(w, &graph->left);
    /* The launch comes after the last use of what it writes to, and after the free of what it allocates. */
    if (held) move(w, held, stream);
    move(w, &graph->left, stream);
    CUresult result = cuGraphLaunch(graph->exec, on(w, stream));
    if (result == OUT_OF_MEMORY || result == INVALID_VALUE) {
        /* Some allocations may have been made, and then a second try within the allocator finds them in its way. */
        w->failed++;
        undo(w, graph, stream);
        return;
    }
    OK(result);
    w->launches++;
    graph->is_live = 1;
    if (held) {
        held->value = graph->held_value;
        if (one_in(w, 2)) verify(w, held);
        if (one_in(w, 2)) put_new(w, held);
    }
}

static void step(Worker *w);

/* What a thread may do beside its own capture: everything in relaxed mode, nothing that could wait in the other. */
static void meanwhile(Worker *w) {
    for (uint64_t i = random_below(w, 5); i > 0; i--) {
        Block *block = &w->block[random_below(w, SLOTS)];
        if (w->capturing == 2) step(w);
        else if (block->address) move(w, block, pick(w, block->reach)), put_new(w, block);
    }
}

/* An allocation node. */
static Block node(Worker *w, Graph *graph, int stream, uint32_t value) {
    Block block = {.bytes = 1 + random_below(w, 4ull << random_below(w, 18)), .stream = stream, .reach = 1 << graph->device};
    OK(cuMemAllocAsync(&block.address, block.bytes, on(w, stream)));
    graph->all[graph->count++] = block.address;
    put(w, &block, value);
    return block;
}

static void build(Worker *w, Graph *graph) {
    CUgraph made = NULL;
    *graph = (Graph){.device = (int)random_below(w, (uint64_t)devices), .held = (int)random_below(w, SLOTS), .frees_itself = one_in(w, 3)};
    int main_stream = own_stream(graph->device, 0), branch = own_stream(graph->device, 1);
    CUevent event = w->fork[graph->device];
    uint32_t value = (uint32_t)random_below(w, 1ull << 32);
    Block *held = &w->block[graph->held];
    if (!held->address || held->held || !(held->reach >> graph->device & 1)) held = NULL, graph->held = -1;
    if (held) held->held = 1;
    settle(w);
    w->stream[main_stream].captures = w->stream[branch].captures = 1;
    evacuate(w, main_stream);
    evacuate(w, branch);

    OK(pthread_rwlock_rdlock(&captures));
    w->capturing = 1 + (int)random_below(w, 2);
    OK(cuStreamBeginCapture_v2(on(w, main_stream), w->capturing));
    Block inner = node(w, graph, main_stream, value);
    meanwhile(w);
    if (one_in(w, 2)) {
        OK(cuEventRecord(event, on(w, main_stream)));
        OK(cuStreamWaitEvent(on(w, branch), event, 0));
        Block beside = node(w, graph, branch, value + 1);
        meanwhile(w);
        OK(cuMemFreeAsync(beside.address, on(w, branch)));
        OK(cuEventRecord(event, on(w, branch)));
        OK(cuStreamWaitEvent(on(w, main_stream), event, 0));
    }
    if (held) {
        Block seen = *held;
        seen.stream = main_stream;
        put(w, &seen, value);
        graph->held_value = value;
        size_t bytes = held->bytes < inner.bytes ? held->bytes : inner.bytes;
        if (held->bytes > ROOM && inner.bytes > ROOM) OK(cuMemcpyDtoDAsync_v2(held->address, inner.address, PIECE, on(w, main_stream)));
        else OK(touch(on(w, main_stream), inner.address, bytes, 0, 1000));
        /* Memory from outside is not a graph's to free. */
        if (held->is_ordered) TRUE(cuMemFreeAsync(held->address, on(w, main_stream)) == INVALID_VALUE);
    }
    OK(cuMemFreeAsync(inner.address, on(w, main_stream)));
    meanwhile(w);
    graph->left = node(w, graph, main_stream, value + 2);
    OK(cuStreamEndCapture(on(w, main_stream), &made));
    w->stream[main_stream].captures = w->stream[branch].captures = 0;
    w->capturing = 0;
    OK(pthread_rwlock_unlock(&captures));

    OK(cuGraphInstantiateWithFlags(&graph->exec, made, (unsigned)graph->frees_itself));
    OK(cuGraphDestroy(made));
    w->graphs++;
}

static void some_graph(Worker *w) {
    Graph *graph = &w->graph[random_below(w, GRAPHS)];
    if (!graph->exec) build(w, graph);
    else if (one_in(w, 6)) drop_graph(w, graph);
    else launch(w, graph);
}
#endif
