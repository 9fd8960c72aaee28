/* For programs and libraries in a process with gpushim: device memory from its stream-ordered pool, for those
   that know their streams, phases for its trace, for those that do not use NVTX, and figures of the memory in use.

   No library to link against: find the functions at run time, and use your own allocator where they are
   missing. docs/library-authors.md has examples and the rules.

       gpushim_malloc_fn *allocate = (gpushim_malloc_fn *)dlsym(RTLD_DEFAULT, "gpushim_malloc");

   The signatures are those that PyTorch's torch.cuda.memory.CUDAPluggableAllocator calls. A stream is a
   CUstream or cudaStream_t: 0 or 1 is the legacy default stream, 2 the calling thread's own. */
#ifndef GPUSHIM_H
#define GPUSHIM_H

#include <stddef.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* `size` bytes on a device (its ordinal), which work submitted to `stream` from now on may use. Work on
   other streams must be made to wait for the stream first. NULL if size is 0 or less, or on any failure.
   While the stream captures, the block is a part of the graph, as with cuMemAllocAsync.

   Any thread may call. The current context stays as it is; if it is not one of the device's, the call
   is made in the device's primary context, which then stays retained. */
void *gpushim_malloc(ssize_t size, int device, void *stream);

/* Gives a block of gpushim_malloc back, on the stream that used it last: it is handed out again when the
   work submitted to `stream` so far is over, or to work that comes after it. NULL is accepted; `size`
   is not looked at; `device` is the one of the allocation. A block that was not allocated in a
   capture must not be freed on a stream that captures: it then stays in use. */
void gpushim_free(void *block, ssize_t size, int device, void *stream);

/* Phases of the program, which the trace's events are then told apart by. A range begins and ends on one
   thread; what threads without ranges of their own do belongs to those of the thread that began one last.
   A range ends with the pop that follows, or encloses others; the levels are NVTX's of the default domain.
   Names are copied, up to 1,024 bytes. Cheap enough for each step of a loop, not for each element.

   Where gpushim need not be there, declare them weak, and look before you call:

       #pragma weak gpushim_range_push
       if (gpushim_range_push) gpushim_range_push("forward"); */
void gpushim_range_push(const char *name);
void gpushim_range_pop(void);

/* A moment. */
void gpushim_mark(const char *name);

/* Whether allocations are recorded. Between gpushim_pause and gpushim_record an allocation leaves no event, takes no
   call stack and is in none of the trace's figures; blocks from before are followed to their end, and failed requests are
   recorded all the same. A mark in the trace tells where. Calls do not nest; they hold for all threads. */
void gpushim_pause(void);
void gpushim_record(void);
int gpushim_is_recording(void);

/* Who keeps the block at an address of device memory, as of now, for people: "KV cache of request", without numbers that
   change. It holds until the block is freed or another is announced. Names are copied, up to 4,096 bytes. */
void gpushim_owner(const void *block, const char *name);

/* Has the trace say who keeps each block, at the next instruction of the main thread of a Python program. Nothing happens
   without GPUSHIM_OWNERS=auto. */
void gpushim_owners(void);

/* Kinds of memory that gpushim_usage tells apart. */
enum gpushim_kind {
    GPUSHIM_TENSORS = 0, /* what a framework hands out of memory that it holds */
    GPUSHIM_DEVICE = 1,  /* memory of a device, handed to the program or to a framework */
    GPUSHIM_MANAGED = 2, /* memory that moves between host and device */
    GPUSHIM_HOST = 3     /* pinned host memory */
};

/* Bytes in use now of a kind on a device (0 to 7), and the most since gpushim_reset_peak or the first call of one of
   the two; paused or not. Without a trace, what was allocated before that first call is not counted. From that first call on, each allocation and free costs some nanoseconds more. Either pointer
   may be NULL. Returns 0, or -1 if there is no such kind or device. */
int gpushim_usage(int kind, int device, unsigned long long *in_use, unsigned long long *peak);
void gpushim_reset_peak(void);

/* Figures of all pools, as many as `out` has room for; returns how many there are: live blocks, bytes handed out, cached,
   held from the driver, held for graphs; stream-ordered pools, and queues of streams in them. */
size_t gpushim_stats(unsigned long long *out, size_t room);

/* Version, commit and build id of the library, on one line; the text stays valid. */
const char *gpushim_version(void);

typedef void *gpushim_malloc_fn(ssize_t size, int device, void *stream);
typedef void gpushim_free_fn(void *block, ssize_t size, int device, void *stream);

#ifdef __cplusplus
}
#endif
#endif
