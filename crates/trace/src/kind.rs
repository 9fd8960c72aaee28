//! Kinds of events, with their numbers in a file.

/// Kind of an event, by its number in a file. The numbers 11, 13 and 14 are not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// A kind that this version does not know; only ever read, never written.
    Unknown = 0,
    /// Memory was allocated. `extra` = stream handle, [`Cost`](crate::Cost).
    Alloc = 1,
    /// The program freed memory. `extra` = stream handle, [`Cost`](crate::Cost).
    Free = 2,
    /// The pool took a segment from the driver (not for calls that are merely forwarded).
    /// `extra[0]` = context handle.
    Reserve = 3,
    /// The pool returned a segment to the driver. `extra[0]` = context handle.
    Release = 4,
    /// A request that could not be met. `size` = requested bytes, `extra` = free, total bytes of
    /// the device.
    OutOfMemory = 5,
    /// The cache was trimmed. `size` = bytes returned to the driver. With `extra[0]` = 1 the
    /// program limited a stream-ordered pool to `extra[1]` bytes. Otherwise the cache had not been
    /// used for a while.
    Trim = 6,
    /// A context was destroyed or reset, with all of its memory. `address` = context handle, `size`
    /// = allocated bytes dropped. `extra[0]` = bytes of dropped segments without a
    /// [`Kind::Release`] of their own.
    ContextGone = 7,
    /// A framework made a tensor. `extra` = the framework's allocated, reserved bytes after it.
    TensorAlloc = 8,
    /// A framework dropped a tensor. `extra` like [`Kind::TensorAlloc`].
    TensorFree = 9,
    /// A framework reported out-of-memory. `extra` like [`Kind::TensorAlloc`].
    TensorOutOfMemory = 10,
    /// The address of memory left the process (IPC handle, DMA-BUF, shareable handle).
    Export = 12,
    /// A stream began to capture. `extra[0]` = stream handle.
    CaptureBegin = 15,
    /// A stream stopped capturing. `extra` = stream handle, graph handle.
    CaptureEnd = 16,
    /// A range of the program began on a thread (NVTX push). `address` = string id of its name,
    /// `extra[0]` = string id of its domain, 0 for none; `stack` = the ranges open now.
    RangePush = 17,
    /// The innermost range of a thread ended (NVTX pop). `stack` = the ranges still open.
    RangePop = 18,
    /// A range began that may end on another thread (NVTX start). `address` = string id of its
    /// name, `size` = its number, `extra[0]` = string id of its domain.
    RangeStart = 19,
    /// A range ended that [`Kind::RangeStart`] began. `size` = its number.
    RangeEnd = 20,
    /// A moment that the program marked. `address` = string id of its name, `extra[0]` = string id
    /// of its domain.
    Mark = 21,
    /// A thread has a name. `address` = its string id.
    ThreadName = 22,
    /// The driver's figures of a device, queried off the hot path. `size` = bytes in use by all
    /// processes, `extra` = free, total bytes.
    DeviceMemory = 23,
    /// State of the pools of a device when a request could not be met. Follows its
    /// [`Kind::OutOfMemory`] on the same thread. `size` = allocated bytes, `extra` = reserved
    /// bytes, bytes of the largest free block. `address` = bytes that were freed and wait for
    /// captures and graphs.
    PoolState = 24,
    /// Code was loaded onto a device. `address` = module or library handle, `size` = device bytes
    /// that went with it.
    ModuleLoad = 25,
    /// Owner of a block at this moment. `address`, `size` = the block's, of a class of its layer;
    /// `extra` = [`OwnerWords`](crate::OwnerWords).
    Owner = 26,
    /// A walk over the program's objects ended; its [`Kind::Owner`] events precede it on the
    /// thread. `address` = [`Occasion`](crate::Occasion), `size` = objects seen, `extra` = ns that
    /// it took, bits of [`walk`](crate::walk).
    OwnersWalk = 27,
    /// A context was made. `address` = its handle, `size` = bytes of the device used by all
    /// processes right after, `extra` = free, total bytes then. Written when a trace exists, which
    /// may be later.
    ContextMade = 28,
    /// Memory of a device that this process uses, with contexts and code, by NVML. `size` = bytes,
    /// `extra` = free, total bytes of the device at the same moment.
    ProcessMemory = 29,
    /// A graph became executable. `address` = its handle, `size` = device bytes that went with it.
    GraphMade = 30,
    /// An executable graph ended. `address` = its handle, `size` = device bytes that its end
    /// returned.
    GraphGone = 31,
    /// NCCL begins to make a communicator. `extra` = number of its ranks, 0 if unknown, and the
    /// rank of this process.
    CommunicatorBegin = 32,
    /// NCCL has made, or failed to make, the communicator that this thread began. `address` = its
    /// handle, 0 if unknown; `result` = NCCL's code.
    CommunicatorEnd = 33,
}

impl Kind {
    /// Every kind that is written, in the order of their numbers.
    pub const ALL: [Kind; 30] = [
        Kind::Alloc,
        Kind::Free,
        Kind::Reserve,
        Kind::Release,
        Kind::OutOfMemory,
        Kind::Trim,
        Kind::ContextGone,
        Kind::TensorAlloc,
        Kind::TensorFree,
        Kind::TensorOutOfMemory,
        Kind::Export,
        Kind::CaptureBegin,
        Kind::CaptureEnd,
        Kind::RangePush,
        Kind::RangePop,
        Kind::RangeStart,
        Kind::RangeEnd,
        Kind::Mark,
        Kind::ThreadName,
        Kind::DeviceMemory,
        Kind::PoolState,
        Kind::ModuleLoad,
        Kind::Owner,
        Kind::OwnersWalk,
        Kind::ContextMade,
        Kind::ProcessMemory,
        Kind::GraphMade,
        Kind::GraphGone,
        Kind::CommunicatorBegin,
        Kind::CommunicatorEnd,
    ];

    /// Returns the kind of a number in a file.
    pub fn from_number(number: u8) -> Kind {
        const BY_NUMBER: [Kind; 256] = {
            let mut kinds = [Kind::Unknown; 256];
            let mut index = 0;
            while index < Kind::ALL.len() {
                kinds[Kind::ALL[index] as usize] = Kind::ALL[index];
                index += 1;
            }
            kinds
        };
        BY_NUMBER[usize::from(number)]
    }

    /// Returns the name used on the command line and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Unknown => "unknown",
            Kind::Alloc => "alloc",
            Kind::Free => "free",
            Kind::Reserve => "reserve",
            Kind::Release => "release",
            Kind::OutOfMemory => "out-of-memory",
            Kind::Trim => "trim",
            Kind::ContextGone => "context-gone",
            Kind::TensorAlloc => "tensor-alloc",
            Kind::TensorFree => "tensor-free",
            Kind::TensorOutOfMemory => "tensor-out-of-memory",
            Kind::Export => "export",
            Kind::CaptureBegin => "capture-begin",
            Kind::CaptureEnd => "capture-end",
            Kind::RangePush => "range-push",
            Kind::RangePop => "range-pop",
            Kind::RangeStart => "range-start",
            Kind::RangeEnd => "range-end",
            Kind::Mark => "mark",
            Kind::ThreadName => "thread-name",
            Kind::DeviceMemory => "device-memory",
            Kind::PoolState => "pool-state",
            Kind::ModuleLoad => "module-load",
            Kind::Owner => "owner",
            Kind::OwnersWalk => "owners-walk",
            Kind::ContextMade => "context-made",
            Kind::ProcessMemory => "process-memory",
            Kind::GraphMade => "graph-made",
            Kind::GraphGone => "graph-gone",
            Kind::CommunicatorBegin => "communicator-begin",
            Kind::CommunicatorEnd => "communicator-end",
        }
    }
}
