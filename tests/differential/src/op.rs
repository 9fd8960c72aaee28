//! What a program is made of. Operations name slots, never addresses or handles, so that any of them can be
//! taken out of a program and the rest still means something.

/// Slots of contexts: the devices' primary ones come first.
pub const CONTEXTS: usize = 6;
/// Slots of blocks.
pub const BLOCKS: usize = 64;
/// Slots of created streams.
pub const STREAMS: usize = 10;
/// Slots of pools that the program makes.
pub const POOLS: usize = 4;
/// Slots of graphs.
pub const GRAPHS: usize = 5;
/// Slots of host memory.
pub const HOSTS: usize = 4;
/// Threads; the first is the process's main one.
pub const THREADS: usize = 7;

/// A stream by slot; below [`Stream::FIRST`] the special handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stream(pub u8);

impl Stream {
    /// Handle 0: legacy, or the thread's own at a `_ptsz` door.
    pub const NULL: Stream = Stream(0);
    /// `CU_STREAM_LEGACY`.
    pub const LEGACY: Stream = Stream(1);
    /// `CU_STREAM_PER_THREAD`.
    pub const PER_THREAD: Stream = Stream(2);
    /// The first slot of created ones.
    pub const FIRST: u8 = 3;

    /// The slot of a created stream.
    pub fn slot(self) -> Option<usize> {
        self.0.checked_sub(Stream::FIRST).map(usize::from)
    }
}

/// A pool: a device's default one, or a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pool {
    /// The default pool of a device.
    Default(u8),
    /// One that the program made.
    Made(u8),
}

/// How a block is allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// `cuMemAlloc`.
    Plain,
    /// `cuMemAllocPitch`, in rows of so many bytes.
    Pitched(u32),
    /// `cuMemAllocAsync`.
    Stream(Stream),
    /// `cuMemAllocFromPoolAsync`.
    Pool(u8, Stream),
}

impl From {
    /// Bytes that a request of so many takes: rows are padded.
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

/// One operation.
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
    /// A second free of what was freed, with or without a stream.
    FreeAgain {
        block: u8,
        stream: Option<Stream>,
    },
    /// A free of an address within a block.
    FreeInside {
        block: u8,
        offset: u32,
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
    AskRange {
        block: u8,
        permille: u16,
    },
    AskAttribute {
        block: u8,
        permille: u16,
        number: u8,
    },
    AskAttributes {
        block: u8,
        permille: u16,
    },
    AskMemory,
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
    /// Everything that is not in use is asked for at once, and given back.
    Probe {
        async_: bool,
    },
    EndThread {
        thread: u8,
    },
    /// So many threads allocate at once.
    Storm {
        threads: u8,
        bytes: u32,
    },
    /// So many threads come and go one after another, each with memory on its default stream.
    ThreadsInTurn {
        threads: u8,
    },
    Fork {
        calls: bool,
    },
    /// The host rests, where the configuration says so.
    Pause,
}

/// Stands for a context that is left as it is.
pub const AS_IS: u8 = 255;

/// One step of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The thread that makes it.
    pub thread: u8,
    /// The context that is made current before; [`AS_IS`] for none.
    pub context: u8,
    /// Whether it comes through the `_ptsz` door.
    pub per_thread: bool,
    /// What it does.
    pub op: Op,
}
