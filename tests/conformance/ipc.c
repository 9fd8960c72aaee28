/* IPC handles, within the process and to another, and peer access of a device to itself. */
#include "conformance.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct message { IpcHandle base, interior; CUdeviceptr theirs; };

/* The importing process. It was forked before either side touched the driver. */
static void importer(int in, int out) {
    struct message m;
    char go = 0;
    if (read(in, &m, sizeof m) != (ssize_t)sizeof m) exit(0);
    CUcontext context = start();
    CUdeviceptr p = 0, q = 0, begin = 0;
    size_t size = 0;
    unsigned char bytes[2] = {0};
    code(cuIpcOpenMemHandle_v2(&p, m.base, 0), "ipc.open.flags_0");
    code(cuIpcOpenMemHandle_v2(&p, m.base, 1), "ipc.open.code");
    if (p) {
        code(cuMemcpyDtoH_v2(bytes, p, 2), "ipc.open.read");
        number(bytes[0], "ipc.open.first_byte_is_10");
        code(cuMemGetAddressRange_v2(&begin, &size, p), "ipc.open.range.code");
        number((long long)size, "ipc.open.range.size_of_4MiB");
        number(begin == p, "ipc.open.range.base");
        unsigned type = 0, legacy = 9;
        cuPointerGetAttribute(&type, 2, p);
        number(type, "ipc.open.memory_type");
        cuPointerGetAttribute(&legacy, 10, p);
        number((unsigned char)legacy, "ipc.open.ipc_capable");
        IpcHandle onward;
        code(cuIpcGetMemHandle(&onward, p), "ipc.open.export_again");
        code(cuIpcOpenMemHandle_v2(&q, m.base, 1), "ipc.open.second_time");
        number(p == q, "ipc.open.second_time.same_address");
        code(cuMemFree_v2(p), "ipc.open.cuMemFree");
        attributes_of("imported", p, context);
        questions_of("imported", p, 4 * MIB);
        q = 0;
        code(cuIpcOpenMemHandle_v2(&q, m.interior, 1), "ipc.open.interior_handle");
        if (q) {
            number((long long)(q - p), "ipc.open.interior_handle.offset_from_base");
            cuMemcpyDtoH_v2(bytes, q, 1);
            number(bytes[0], "ipc.open.interior_handle.first_byte");
        }
        code(cuIpcCloseMemHandle(p + 512), "ipc.close.interior");
        code(cuIpcCloseMemHandle(p), "ipc.close.1");
        code(cuIpcCloseMemHandle(p), "ipc.close.2");
        code(cuIpcCloseMemHandle(p), "ipc.close.3");
        code(cuIpcCloseMemHandle(p), "ipc.close.4");
    }
    cuMemAlloc_v2(&q, 1000);
    code(cuIpcCloseMemHandle(q), "ipc.close.of_cuMemAlloc");
    fflush(stdout);
    go = 1;
    if (write(out, &go, 1) != 1) exit(1);
    _exit(0);
}

void section_ipc(void) {
    int to[2], from[2];
    if (pipe(to) || pipe(from)) exit(1);
    pid_t child = fork();
    if (child == 0) {
        close(to[1]), close(from[0]);
        alarm(12);
        importer(to[0], from[1]);
    }
    close(to[0]), close(from[1]);
    CUcontext context = start();
    CUdeviceptr p = 0, q = 0, small = 0;
    struct message m;
    memset(&m, 0, sizeof m);
    IpcHandle h, again;
    memset(&h, 0, sizeof h);
    cuMemAlloc_v2(&p, 4 * MIB);
    cuMemsetD8_v2(p, 10, MIB);
    cuMemsetD8_v2(p + MIB, 20, MIB);
    cuCtxSynchronize();
    code(cuIpcGetMemHandle(&m.base, p), "ipc.get.base");
    code(cuIpcGetMemHandle(&again, p), "ipc.get.again");
    number(!memcmp(&again, &m.base, sizeof again), "ipc.get.again.equal");
    code(cuIpcGetMemHandle(&m.interior, p + MIB), "ipc.get.interior");
    number(!memcmp(&m.interior, &m.base, sizeof h), "ipc.get.interior.equals_base");
    code(cuIpcGetMemHandle(NULL, p), "ipc.get.nowhere");
    code(cuIpcGetMemHandle(&h, 0), "ipc.get.null");
    code(cuIpcGetMemHandle(&h, 0x7f0000000000ull), "ipc.get.unknown");
    cuMemAlloc_v2(&small, 1000);
    code(cuIpcGetMemHandle(&h, small), "ipc.get.small");
    cuMemFree_v2(small);
    code(cuIpcGetMemHandle(&h, small), "ipc.get.freed");
    cuMemAllocManaged(&q, 4096, 1);
    code(cuIpcGetMemHandle(&h, q), "ipc.get.managed");
    cuMemFree_v2(q);
    cuMemAllocAsync(&q, 4096, NULL);
    code(cuIpcGetMemHandle(&h, q), "ipc.get.async");
    cuMemFree_v2(q);
    void *host = NULL;
    cuMemHostAlloc(&host, 4096, 0);
    code(cuIpcGetMemHandle(&h, (CUdeviceptr)(uintptr_t)host), "ipc.get.host");
    cuMemFreeHost(host);
    AllocationProp prop = {.type = 1, .location = {1, 0}};
    AccessDesc access = {{1, 0}, 3};
    CUhandle handle = 0;
    cuMemAddressReserve(&q, 2 * MIB, 0, 0, 0);
    cuMemCreate(&handle, 2 * MIB, &prop, 0);
    cuMemMap(q, 2 * MIB, 0, handle, 0);
    cuMemSetAccess(q, 2 * MIB, &access, 1);
    code(cuIpcGetMemHandle(&h, q), "ipc.get.vmm");
    cuMemUnmap(q, 2 * MIB), cuMemRelease(handle), cuMemAddressFree(q, 2 * MIB);
    q = 0;
    code(cuIpcOpenMemHandle_v2(&q, m.base, 1), "ipc.open_in_same_process");
    memset(&h, 0x55, sizeof h);
    code(cuIpcOpenMemHandle_v2(&q, h, 1), "ipc.open_garbage");
    code(cuIpcCloseMemHandle(p), "ipc.close_own_allocation");
    CUevent shared = NULL, plain = plain_event();
    cuEventCreate(&shared, 6);
    code(cuIpcGetEventHandle(&h, shared), "ipc.event.get");
    code(cuIpcGetEventHandle(&h, plain), "ipc.event.get_plain");
    fflush(stdout);
    char done = 0;
    if (write(to[1], &m, sizeof m) != (ssize_t)sizeof m || read(from[0], &done, 1) != 1) text("importer failed", "ipc.importer");
    waitpid(child, NULL, 0);
    code(cuMemFree_v2(p), "ipc.free_after_export");

    int able = 99;
    code(cuDeviceCanAccessPeer(&able, 0, 0), "peer.self.can_access.code");
    number(able, "peer.self.can_access");
    code(cuDeviceCanAccessPeer(&able, 0, 99), "peer.bad_device.can_access");
    code(cuDeviceCanAccessPeer(NULL, 0, 0), "peer.nowhere.can_access");
    code(cuDeviceGetP2PAttribute(&able, 2, 0, 0), "peer.self.p2p_attribute");
    code(cuCtxEnablePeerAccess(context, 0), "peer.self.enable");
    code(cuCtxEnablePeerAccess(NULL, 0), "peer.null.enable");
    code(cuCtxEnablePeerAccess(context, 1), "peer.self.enable_flags_1");
    code(cuCtxDisablePeerAccess(context), "peer.self.disable");
    CUcontext other = NULL;
    cuCtxCreate_v2(&other, 0, 0);
    cuCtxSetCurrent(context);
    code(cuCtxEnablePeerAccess(other, 0), "peer.second_context_same_device.enable");
    code(cuCtxEnablePeerAccess(other, 0), "peer.second_context_same_device.enable_again");
    code(cuCtxDisablePeerAccess(other), "peer.second_context_same_device.disable");
    code(cuCtxDisablePeerAccess(other), "peer.second_context_same_device.disable_again");
    cuCtxDestroy_v2(other);
}
