//! A process with known memory: PyTorch, communicators, cuBLAS, cuDNN, graphs, an extension.

use std::rc::Rc;

use tempfile::TempDir;

use super::*;
use crate::recording::{Frame, Names};
use crate::symbols::{Kind as Code, Symbol};
use gpushim_trace::{Class, Cost, Event, Kind, StackNode, Trace, Writer, WriterOptions, flags};

const MIB: u64 = 1 << 20;
const TOTAL: u64 = 80 << 30;

/// Functions by return address.
const FUNCTIONS: [(&str, &str); 11] = [
    (
        "c10::cuda::CUDACachingAllocator::malloc(int)",
        "libc10_cuda.so",
    ),
    ("at::cuda::getCUDABlasLtWorkspace()", "libtorch_cuda.so"),
    ("at::native::empty_cuda(long)", "libtorch_cuda.so"),
    ("", "libnccl.so.2"),
    ("", "libcublas.so.13"),
    ("", "libcudnn_graph.so.9"),
    ("grow", "libmine.so"),
    ("cudaMalloc", "libcudart.so.13"),
    ("main", "train.py"),
    ("start_thread", "libc.so.6"),
    ("init", "dist.py"),
];
const CACHE: u64 = 0x1000;
const WORKSPACE: u64 = CACHE + 1;
const EMPTY: u64 = CACHE + 2;
const NCCL: u64 = CACHE + 3;
const CUBLAS: u64 = CACHE + 4;
const CUDNN: u64 = CACHE + 5;
const MINE: u64 = CACHE + 6;
const CUDART: u64 = CACHE + 7;
const MAIN: u64 = CACHE + 8;
const THREAD: u64 = CACHE + 9;
const INIT: u64 = CACHE + 10;

struct Named<'a>(&'a Trace);

impl Names for Named<'_> {
    fn stack(&mut self, id: u32) -> Rc<[Frame]> {
        let symbol = |address: u64| {
            let (function, place) = FUNCTIONS[(address - CACHE) as usize];
            let kind = match place.ends_with(".py") {
                true => Code::Python,
                false if function.is_empty() => Code::Unknown,
                false => Code::Native,
            };
            let path = Some(format!("/opt/{place}"));
            Symbol {
                function: function.to_string(),
                file: path.clone().filter(|_| kind == Code::Python),
                line: (kind == Code::Python).then_some(7),
                module: path.filter(|_| kind != Code::Python),
                inlined: false,
                kind,
                known: Default::default(),
            }
        };
        let frames = self.0.stack(id).filter_map(|node| match node {
            StackNode::Frame(address) => Some(Frame::Call(Rc::new([symbol(address)]))),
            _ => None,
        });
        frames.collect()
    }

    fn problems(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Simulated process that writes a trace.
struct Process {
    dir: TempDir,
    writer: Writer,
    next: u64,
    /// Bytes that all processes hold from the driver.
    in_use: u64,
    /// True if the driver is asked for its figures.
    told: bool,
}

/// Bytes that other processes use.
const OTHERS: u64 = 700 * MIB;
/// Bytes of the first context.
const CONTEXT: u64 = 500 * MIB;

impl Process {
    fn new() -> Process {
        let dir = tempfile::tempdir().expect("a folder");
        let options = WriterOptions::default();
        let writer = Writer::create(&dir.path().join("a.trace"), &options).expect("a trace");
        Process {
            dir,
            writer,
            next: 1 << 40,
            in_use: OTHERS + CONTEXT,
            told: true,
        }
    }

    fn record(&self, event: Event) {
        match event.kind {
            Kind::Alloc | Kind::TensorAlloc => self.writer.record_alloc(&event),
            Kind::Free | Kind::TensorFree => drop(self.writer.record_free(&event)),
            _ => self.writer.record(&event),
        }
    }

    fn event(&self, kind: Kind, size: u64) -> Event {
        Event {
            device: 0,
            thread: 1,
            size,
            ..Event::new(kind, Class::Device)
        }
    }

    /// Records the current figures of the driver.
    fn asked(&self, kind: Kind, size: u64) {
        if self.told {
            let extra = [TOTAL - self.in_use, TOTAL];
            self.record(Event {
                extra,
                ..self.event(kind, size)
            });
        }
    }

    fn sampled(&self) {
        self.asked(Kind::DeviceMemory, self.in_use);
    }

    /// Allocates a block from the driver.
    fn block(&mut self, size: u64, frames: &[u64], thread: u32, flag: u16) -> Event {
        self.next += size;
        self.in_use += size;
        let event = Event {
            address: self.next,
            thread,
            stack: self.writer.stack(0, frames),
            flags: flags::FORWARDED | flag,
            extra: [0, Cost::pack(0, size)],
            ..self.event(Kind::Alloc, size)
        };
        self.record(event);
        event
    }

    /// Allocates a tensor at an address, with PyTorch's own figures.
    fn tensor(&self, address: u64, size: u64, maker: u64, said: [u64; 2]) -> Event {
        let event = Event {
            address,
            class: Class::Tensor,
            stack: self.writer.stack(0, &[maker, MAIN]),
            extra: said,
            ..self.event(Kind::TensorAlloc, size)
        };
        self.record(event);
        event
    }

    /// Makes a communicator of NCCL with its memory on a thread of its own, from a line of the
    /// program.
    fn communicator(&mut self, ranks: u64, bytes: u64, thread: u32, place: u64) {
        self.record(Event {
            extra: [ranks, 0],
            stack: self.writer.stack(0, &[place]),
            ..self.event(Kind::CommunicatorBegin, 0)
        });
        // One function of NCCL calls another.
        self.record(Event {
            stack: self.writer.stack(0, &[NCCL, place]),
            ..self.event(Kind::CommunicatorBegin, 0)
        });
        self.block(bytes / 4, &[CUDART, NCCL, THREAD], thread, 0);
        self.record(self.event(Kind::CommunicatorEnd, 0));
        self.block(bytes - bytes / 4, &[CUDART, NCCL, THREAD], thread, 0);
        self.record(self.event(Kind::CommunicatorEnd, 0));
    }

    /// Makes the table of the only device.
    fn rows(&self, when: When, at_end: bool) -> DeviceMemory {
        let trace = Trace::open(self.writer.path()).expect("a trace");
        let memory = MemorySums::of(&trace, when);
        let mut all = DeviceMemory::of(&memory, at_end, &mut Named(&trace));
        assert_eq!(all.len(), 1, "{all:#?}");
        assert!(self.dir.path().exists());
        all.remove(0)
    }
}

/// Allocates memory of all owners. Returns the block that tests free.
fn everything(process: &mut Process) -> Event {
    process.asked(Kind::ContextMade, process.in_use);
    let segment = process.block(1000 * MIB, &[CUDART, CACHE, EMPTY, MAIN], 1, 0);
    let pool = process.block(200 * MIB, &[CUDART, CACHE, EMPTY, MAIN], 1, flags::CAPTURE);
    let said = [0, 1200 * MIB];
    process.tensor(segment.address, 600 * MIB, EMPTY, said);
    process.tensor(segment.address + 600 * MIB, 32 * MIB, WORKSPACE, said);
    process.tensor(pool.address + MIB, 50 * MIB, EMPTY, said);
    process.communicator(1, 96 * MIB, 71, MAIN);
    process.communicator(1, 64 * MIB, 72, INIT);
    process.communicator(8, 512 * MIB, 73, INIT);
    process.block(40 * MIB, &[CUDART, CUBLAS, EMPTY, MAIN], 1, 0);
    process.block(24 * MIB, &[CUDART, CUBLAS, CUDNN, MAIN], 1, 0);
    process.block(16 * MIB, &[CUDART, CUDNN, EMPTY, MAIN], 1, 0);
    let mine = process.block(300 * MIB, &[CUDART, MINE, MAIN], 1, 0);
    for (kind, bytes) in [(Kind::ModuleLoad, 12 * MIB), (Kind::GraphMade, 6 * MIB)] {
        process.in_use += bytes;
        process.record(process.event(kind, bytes));
    }
    // Kernels that are loaded at their first launch.
    process.in_use += 30 * MIB;
    process.sampled();
    process.asked(Kind::ProcessMemory, process.in_use - OTHERS);
    mine
}

const OTHER_PROCESSES: &str = "other processes, and the driver itself";

/// Formats rows as part, owner and MiB.
fn short(memory: &DeviceMemory) -> Vec<(MemoryPart, &str, u64)> {
    let mut rows: Vec<_> = (memory.rows.iter())
        .map(|row| (row.part, row.owner.as_str(), row.bytes / MIB))
        .collect();
    rows.sort_unstable();
    rows
}

const ALL: [(MemoryPart, &str, u64); 15] = [
    (MemoryPart::Tensors, "PyTorch", 600),
    (MemoryPart::Workspaces, "PyTorch", 32),
    (MemoryPart::GraphPools, "PyTorch", 200),
    (MemoryPart::Cache, "PyTorch", 368),
    (MemoryPart::Communicator, "NCCL", 64),
    (MemoryPart::Communicator, "NCCL", 96),
    (MemoryPart::Communicator, "NCCL", 512),
    (MemoryPart::Library, "cuBLAS", 64),
    (MemoryPart::Library, "cuDNN", 16),
    (MemoryPart::Code, "libmine.so", 300),
    (MemoryPart::Graphs, "CUDA graphs", 6),
    (MemoryPart::Modules, "CUDA", 12),
    (MemoryPart::Contexts, "CUDA", 500),
    (MemoryPart::Rest, "CUDA", 30),
    (MemoryPart::OtherProcesses, OTHER_PROCESSES, 700),
];

#[test]
fn each_owner_has_its_row_and_they_add_up() {
    let mut process = Process::new();
    let mine = everything(&mut process);
    let in_use = process.in_use;
    process.record(Event {
        kind: Kind::Free,
        ..mine
    });
    process.in_use -= mine.size;
    process.sampled();

    let peak = process.rows(When::Peak, false);
    assert_eq!(short(&peak), ALL);
    assert_eq!((peak.used, peak.by_process), (in_use, in_use - OTHERS));
    assert!(peak.others_told && peak.driver_told);
    let end = process.rows(When::Peak, true);
    let without: Vec<_> = (ALL.into_iter())
        .filter(|(part, ..)| *part != MemoryPart::Code)
        .collect();
    assert_eq!(short(&end), without);
    assert_eq!(end.used, process.in_use);

    // Each communicator has the line that made it.
    let made: Vec<_> = (peak.rows.iter())
        .filter(|row| row.part == MemoryPart::Communicator)
        .map(|row| {
            let place = row.made_at.as_ref().map(|made| made.in_a_sentence());
            (row.number, row.bytes / MIB, place.unwrap_or_default())
        })
        .collect();
    let expected = [
        (1, 96, "main train.py:7"),
        (2, 64, "init dist.py:7"),
        (3, 512, "init dist.py:7"),
    ];
    let mut told: Vec<_> = (made.iter())
        .map(|(number, mib, place)| (number.unwrap_or(0), *mib, place.as_str()))
        .collect();
    told.sort_unstable();
    assert_eq!(told, expected);

    let text = beside(&peak, &end, false, false);
    for line in [
        "300.0 MiB    8.6 %            -  libmine.so: allocations of its own",
        "512.0 MiB   14.6 %    512.0 MiB  NCCL: communicator of 8 ranks (3), made at init dist.py:7",
        "2.7 GiB   80.0 %      2.4 GiB  used by this process",
        "3.4 GiB               3.1 GiB  used by all processes, of 80.0 GiB",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
}

#[test]
fn a_moment_before_has_what_was_there_then() {
    let mut process = Process::new();
    everything(&mut process);
    // Before the tensors, as the context's event is the first.
    let then = process.rows(When::Ticket(3), false);
    let expected = [
        (MemoryPart::GraphPools, "PyTorch", 200),
        (MemoryPart::Cache, "PyTorch", 1000),
        (MemoryPart::Contexts, "CUDA", 500),
        (MemoryPart::Rest, "CUDA", 30),
        (MemoryPart::OtherProcesses, OTHER_PROCESSES, 700),
    ];
    assert_eq!(short(&then), expected);
}

#[test]
fn what_the_driver_was_not_asked_is_not_made_up() {
    let mut process = Process::new();
    process.told = false;
    everything(&mut process);
    let memory = process.rows(When::Peak, false);
    let is_of_driver = |part| {
        matches!(
            part,
            MemoryPart::Contexts | MemoryPart::Rest | MemoryPart::OtherProcesses
        )
    };
    let recorded: Vec<_> = (ALL.into_iter())
        .filter(|(part, ..)| !is_of_driver(*part))
        .collect();
    assert_eq!(short(&memory), recorded);
    assert!(!memory.driver_told && !memory.others_told);
}

#[test]
fn without_stacks_the_framework_says_what_is_its() {
    let mut process = Process::new();
    process.told = false;
    process.block(100 * MIB, &[], 1, 0);
    let segment = process.block(1000 * MIB, &[], 1, 0);
    process.tensor(segment.address, 600 * MIB, EMPTY, [600 * MIB, 1000 * MIB]);
    let expected = [
        (MemoryPart::Tensors, "PyTorch", 600),
        (MemoryPart::Cache, "PyTorch", 400),
        (MemoryPart::NotRecorded, "allocations", 100),
    ];
    assert_eq!(short(&process.rows(When::Peak, false)), expected);
}

#[test]
fn a_cache_without_a_tensor_is_the_same_row() {
    let mut process = Process::new();
    process.told = false;
    let segment = process.block(100 * MIB, &[CUDART, CACHE, EMPTY, MAIN], 1, 0);
    let tensor = process.tensor(segment.address, 60 * MIB, EMPTY, [60 * MIB, 100 * MIB]);
    let said = [0, 100 * MIB];
    process.record(Event {
        kind: Kind::TensorFree,
        extra: said,
        ..tensor
    });
    let (peak, end) = (
        process.rows(When::Peak, false),
        process.rows(When::Peak, true),
    );
    let text = beside(&peak, &end, false, false);
    let line = "40.0 MiB   40.0 %    100.0 MiB  PyTorch: cached and not in use";
    assert!(text.contains(line), "{text}");
    assert!(
        text.contains("60.0 MiB   60.0 %            -  PyTorch: tensors"),
        "{text}"
    );
}

#[test]
fn communicators_that_nobody_announced_are_told_by_their_threads() {
    let mut process = Process::new();
    process.told = false;
    for (thread, mib) in [(71, 96), (72, 64), (71, 4)] {
        process.block(mib * MIB, &[CUDART, NCCL, THREAD], thread, 0);
    }
    let memory = process.rows(When::Peak, false);
    assert_eq!(
        short(&memory),
        [
            (MemoryPart::Communicator, "NCCL", 64),
            (MemoryPart::Communicator, "NCCL", 100)
        ]
    );
}

#[test]
fn a_block_that_is_freed_before_it_is_seen_was_there() {
    let mut process = Process::new();
    process.told = false;
    let kept = process.block(10 * MIB, &[MINE], 1, 0);
    let unseen = Event {
        kind: Kind::Free,
        address: 77,
        size: 30 * MIB,
        extra: [0, Cost::pack(0, 30 * MIB)],
        ..kept
    };
    process.record(unseen);
    let code = (MemoryPart::Code, "libmine.so", 10);
    let before = (MemoryPart::NotRecorded, "allocations", 30);
    assert_eq!(short(&process.rows(When::Peak, false)), [code, before]);
    assert_eq!(short(&process.rows(When::Peak, true)), [code]);
}

#[test]
fn a_server_is_told_how_much_more_its_cache_could_have() {
    let spare = |cache: u64, others: u64| {
        let mut process = Process::new();
        process.in_use = others;
        let segment = process.block(cache, &[CUDART, CACHE, EMPTY, MAIN], 1, 0);
        process.tensor(segment.address, cache, EMPTY, [cache, cache]);
        process.sampled();
        let trace = Trace::open(process.writer.path()).expect("a trace");
        let memory = MemorySums::of(&trace, When::Peak);
        let mut all = DeviceMemory::of(&memory, true, &mut Named(&trace));
        Spare::of(&memory, &all.remove(0), &mut Named(&trace))
    };
    let found = spare(60 << 30, 2 << 30).expect("room");
    assert_eq!(found.margin, TOTAL / 100);
    assert_eq!(found.bytes, (18 << 30) - TOTAL / 100);
    assert!(found.sentence().starts_with(
        "the cache of `main train.py:7`, 60.0 GiB on gpu 0, could be given 17.2 GiB more"
    ));
    // A full device, and a process without a large cache.
    assert_eq!(spare(60 << 30, 19 << 30), None);
    assert_eq!(spare(6 << 30, 2 << 30), None);
}
