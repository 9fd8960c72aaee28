//! Operations of a program. They name slots, never addresses or handles. A program without some of
//! its operations is therefore still valid.

/// Slots of contexts: the devices' primary ones come first.
pub const CONTEXTS: usize = 6;
/// Number of slots of blocks.
pub const BLOCKS: usize = 64;
/// Slots of created streams.
pub const STREAMS: usize = 10;
/// Slots of pools that the program makes.
pub const POOLS: usize = 4;
/// Number of slots of graphs.
pub const GRAPHS: usize = 5;
/// Number of slots of host memory.
pub const HOSTS: usize = 4;
/// Threads; the first is the process's main one.
pub const THREADS: usize = 7;

/// A stream by slot; below [`Stream::FIRST`] the special handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stream(pub u8);

impl Stream {
    /// Handle 0: legacy, or the thread's own at a `_ptsz` door.
    pub const NULL: Stream = Stream(0);
    /// The stream `CU_STREAM_LEGACY`.
    pub const LEGACY: Stream = Stream(1);
    /// The stream `CU_STREAM_PER_THREAD`.
    pub const PER_THREAD: Stream = Stream(2);
    /// The first slot of created ones.
    pub const FIRST: u8 = 3;

    /// The slot of a created stream.
    pub fn slot(self) -> Option<usize> {
        self.0.checked_sub(Stream::FIRST).map(usize::from)
    }
}

/// An address that a block's own gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Bytes behind the block's first one.
    Offset(u32),
    /// Thousandths of the block's size behind its first byte.
    Permille(u16),
    /// The first byte behind the block.
    End,
    /// The page of 2 MiB in which the block begins, or the n-th page after it.
    Page(u8),
}

/// A question about an address, or a wrong call there. Natively most are refused, and none has an
/// effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// Base and size, by `cuMemGetAddressRange`.
    Range,
    /// `cuPointerGetAttribute` of this number.
    Attribute(u8),
    /// `cuPointerGetAttributes` of one of [`ATTRIBUTE_LISTS`].
    Attributes(u8),
    /// `cuPointerSetAttribute`: synchronous copies of the block wait for the device, or no longer.
    SetSyncMemops(bool),
    /// `cuIpcGetMemHandle`, twice. The handle is opened and closed in its own process, which is
    /// refused.
    IpcHandle,
    /// `cuIpcCloseMemHandle` of a block that was never opened.
    IpcClose,
    /// `cuMemRetainAllocationHandle`, and then an export and a release of the handle.
    Retain,
    /// `cuMemGetHandleForAddressRange` of this many bytes.
    Exported(u32),
    /// `cuMemPoolExportPointer` of a pool that cannot be exported.
    PoolExport,
    /// `cuMemHostRegister` of a live block.
    Register,
    /// `cuMemHostUnregister`: only its success is compared.
    Unregister,
    /// `cuMemHostGetDevicePointer` and `cuMemHostGetFlags`.
    AsHost,
    /// A free by the function for host memory.
    FreeHost,
    /// `cuMemAdvise`, both variants.
    Advise,
    /// `cuMemPrefetchAsync`, both variants.
    Prefetch,
    /// `cuStreamAttachMemAsync` to the legacy stream.
    Attach,
    /// `cuMemRangeGetAttribute` and `cuMemRangeGetAttributes`.
    RangeAttribute(u8),
    /// The device's access, by `cuMemGetAccess`.
    Access,
    /// `cuMemSetAccess`: 0 nothing, 1 read, 3 write too; and the number of pages.
    SetAccess(u8, u8),
    /// `cuMemMap` of memory of the program's.
    Map,
    /// `cuMemUnmap` of this many pages.
    Unmap(u8),
    /// `cuMemAddressFree` of this many pages.
    FreeAddresses(u8),
}

/// Attributes that are asked for together.
pub const ATTRIBUTE_LISTS: &[&[i32]] = &[
    &[2, 8, 9, 11, 12, 17],
    // Those of `cudaPointerGetAttributes`.
    &[1, 2, 3, 4, 8, 9],
    &[6, 13, 14, 16],
    &[12],
    // One that there is not.
    &[2, 99, 9],
];

/// Objects that are made and ended beside allocating threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// No object: the threads are alone.
    None,
    /// Created contexts, with blocks that end with them.
    Contexts,
    /// Green contexts, whose blocks are freed before.
    Green,
    /// The primary context of another device.
    Primary,
}

/// A pool: a device's default one, or a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pool {
    /// The default pool of a device.
    Default(u8),
    /// One that the program made.
    Made(u8),
}

/// Function that allocates a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// Allocation by `cuMemAlloc`.
    Plain,
    /// Allocation by `cuMemAllocPitch`, in rows of this many bytes.
    Pitched(u32),
    /// Allocation by `cuMemAllocAsync`.
    Stream(Stream),
    /// `cuMemAllocFromPoolAsync`.
    Pool(u8, Stream),
}

impl From {
    /// Bytes that a request takes. Rows of pitched memory are padded.
    pub fn takes(self, bytes: u64) -> u64 {
        const PITCH: u64 = 512;
        match self {
            From::Pitched(width) => {
                let width = u64::from(width);
                bytes.div_ceil(width) * width.next_multiple_of(PITCH)
            }
            _ => bytes,
        }
    }
}

/// One operation of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// The context is made current, nothing else.
    SetContext,
    CreateContext {
        slot: u8,
        device: u8,
        /// A green one: on some of the device's processors, with the primary context's memory.
        green: bool,
    },
    DestroyContext {
        slot: u8,
    },
    PushPop {
        slot: u8,
    },
    Retain {
        device: u8,
    },
    Release {
        device: u8,
    },
    Reset {
        device: u8,
    },
    SyncContext,
    AskContext,
    CreateStream {
        slot: u8,
        blocking: bool,
    },
    DestroyStream {
        slot: u8,
    },
    SyncStream {
        stream: Stream,
    },
    QueryStream {
        stream: Stream,
    },
    /// An event on one stream that another waits for; the second context is the waiting stream's.
    Order {
        from: Stream,
        to: Stream,
        context: u8,
    },
    Allocate {
        block: u8,
        bytes: u64,
        from: From,
    },
    Free {
        block: u8,
    },
    FreeAsync {
        block: u8,
        stream: Stream,
    },
    /// A free of an address where no block begins, or where one began, with or without a stream.
    FreeWrongly {
        block: u8,
        place: Place,
        stream: Option<Stream>,
    },
    Fill {
        block: u8,
        value: u8,
        stream: Stream,
        whole: bool,
    },
    Copy {
        from: u8,
        to: u8,
        stream: Stream,
    },
    CopyPeer {
        from: u8,
        to: u8,
        from_context: u8,
        to_context: u8,
        stream: Stream,
    },
    Upload {
        block: u8,
        value: u8,
        host: u8,
        stream: Stream,
    },
    Read {
        block: u8,
    },
    Kernel {
        block: u8,
        stream: Stream,
        writes: bool,
    },
    /// A question about a block that is live, or was freed.
    Ask {
        block: u8,
        freed: bool,
        place: Place,
        question: Question,
    },
    AskMemory,
    /// The program's own virtual memory: reserved, mapped, shared, and freed.
    MapOwn {
        pages: u8,
    },
    HostAllocate {
        host: u8,
        bytes: u32,
    },
    HostFree {
        host: u8,
    },
    CreatePool {
        pool: u8,
        device: u8,
        max_size: u64,
    },
    DestroyPool {
        pool: u8,
    },
    TrimPool {
        pool: Pool,
        keep: u64,
    },
    SetPool {
        pool: Pool,
        attribute: u8,
        value: u64,
    },
    AskPool {
        pool: Pool,
        attribute: u8,
    },
    ChoosePool {
        device: u8,
        pool: Pool,
    },
    PoolAccess {
        pool: u8,
        device: u8,
        flags: u8,
    },
    Peer {
        context: u8,
        enable: bool,
    },
    BeginCapture {
        stream: Stream,
        mode: u8,
    },
    EndCapture {
        stream: Stream,
        graph: u8,
    },
    ExchangeMode {
        mode: u8,
    },
    Instantiate {
        graph: u8,
        flags: u8,
    },
    Launch {
        graph: u8,
        stream: Stream,
    },
    DestroyGraph {
        graph: u8,
        exec_only: bool,
    },
    TrimGraphs {
        device: u8,
    },
    /// All unused memory is requested at once, and freed.
    Probe {
        async_: bool,
    },
    EndThread {
        thread: u8,
    },
    /// Threads allocate at the same moment.
    Storm {
        threads: u8,
        bytes: u32,
    },
    /// Threads start and end one after another, each with memory on its default stream.
    ThreadsInTurn {
        threads: u8,
    },
    /// Threads at once: some allocate, use and free, some capture, and one makes and ends contexts.
    Crowd {
        threads: u8,
        capturing: u8,
        ending: Ending,
        exports: bool,
        seed: u16,
    },
    /// The program closes all descriptors, except those of the driver's memory, and opens its own.
    CloseDescriptors,
    Fork {
        calls: bool,
    },
    /// The host rests, where the configuration says so.
    Pause,
}

/// Stands for a context that is left as it is.
pub const AS_IS: u8 = 255;

/// One step of a generated program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The thread that makes it.
    pub thread: u8,
    /// The context that is made current before; [`AS_IS`] for none.
    pub context: u8,
    /// True if the call is made through the `_ptsz` entry point.
    pub per_thread: bool,
    /// Operation that the step performs.
    pub op: Op,
}
