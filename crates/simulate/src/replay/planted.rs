//! Snapshots for tests, in PyTorch's format. The model of PyTorch's allocator serves the requests
//! of a simulated program.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::allocator::Allocator;
use super::caching::Caching;
use super::torch::Torch;
use gpushim_analysis::requests::{Op, Request, Requests};
use gpushim_recording::Snapshot;
use gpushim_recording::sample::pickled;

/// Most blocks of a planted run.
const BLOCKS: u32 = 1 << 16;

/// A block of a simulated program.
#[derive(Clone, Copy, Debug)]
pub struct PlantedBlock {
    number: u32,
    address: u64,
    bytes: u64,
    stream: u64,
}

/// A simulated program with PyTorch's allocator.
pub struct Planted {
    torch: Caching<Torch>,
    capacity: u64,
    entries: Vec<Value>,
    /// Current segments by address: bytes and stream.
    segments: BTreeMap<u64, (u64, u64)>,
    live: BTreeMap<u64, (PlantedBlock, &'static str, Value)>,
    next: u32,
    /// Line of the allocating function, for calls that need different lines.
    pub line: Option<u64>,
}

impl Planted {
    /// Begins a run on a device of `capacity` bytes.
    pub fn new(capacity: u64) -> Planted {
        let requests = Requests::default();
        Planted {
            torch: Caching::new(Torch::new(&requests, None), capacity, BLOCKS),
            capacity,
            entries: Vec::new(),
            segments: BTreeMap::new(),
            live: BTreeMap::new(),
            next: 0,
            line: None,
        }
    }

    fn note(&mut self, action: &str, at: [u64; 2], stream: u64, frames: Value) {
        let time = 1_000_000 + 10 * self.entries.len() as u64;
        self.entries.push(json!({
            "action": action, "addr": at[0], "size": at[1], "stream": stream, "time_us": time, "frames": frames,
        }));
    }

    fn request(&self, op: Op, number: u32, bytes: u64, stream: u64) -> Request {
        Request {
            op,
            block: number,
            bytes,
            stream: Some(stream),
            thread: 1,
            ns: 0,
        }
    }

    /// Allocates memory on a stream in a function. If that fails it returns `None` and notes `oom`
    /// in the history.
    pub fn take(&mut self, function: &str, stream: u64, bytes: u64) -> Option<PlantedBlock> {
        let of_name = function.bytes().map(u64::from).sum::<u64>();
        let line = self.line.unwrap_or(of_name);
        let file = match function.rsplit('.').next() {
            Some("step") => "/usr/lib/python3/dist-packages/torch/optim/adamw.py",
            Some("backward") => "/usr/lib/python3/dist-packages/torch/_tensor.py",
            _ => "/home/user/train.py",
        };
        let frames = json!([
            {"name": function, "filename": file, "line": line},
            {"name": "main", "filename": "/home/user/train.py", "line": 7 + of_name},
        ]);
        let number = self.next;
        self.next += 1;
        let request = self.request(Op::Allocate, number, bytes, stream);
        let free = self.capacity - self.torch.reserved();
        let met = self.torch.allocate(&request).is_ok();
        self.give_back();
        if !met {
            self.note("oom", [0, bytes], stream, frames);
            let last = self.entries.last_mut().expect("the entry");
            last["device_free"] = json!(free);
            return None;
        }
        let (address, _) = self.torch.place(number).expect("its place");
        let (segment, size) = self.torch.region(number).expect("its segment");
        if self.segments.insert(segment, (size, stream)).is_none() {
            self.note("segment_alloc", [segment, size], stream, json!([]));
        }
        self.note("alloc", [address, bytes], stream, frames.clone());
        let block = PlantedBlock {
            number,
            address,
            bytes,
            stream,
        };
        self.live
            .insert(address, (block, "active_allocated", frames));
        Some(block)
    }

    fn give_back(&mut self) {
        for (segment, _) in self.torch.dropped() {
            if let Some((bytes, stream)) = self.segments.remove(&segment) {
                self.note("segment_free", [segment, bytes], stream, json!([]));
            }
        }
    }

    /// Discards the history of the run.
    pub fn forget(&mut self) {
        self.entries.clear();
    }

    /// Frees a block that other streams still use.
    pub fn drop_early(&mut self, block: PlantedBlock) {
        self.note(
            "free_requested",
            [block.address, block.bytes],
            block.stream,
            json!([]),
        );
        if let Some((_, state, _)) = self.live.get_mut(&block.address) {
            *state = "active_pending_free";
        }
    }

    /// Completes the work of other streams with a freed block.
    pub fn is_done(&mut self, block: PlantedBlock) {
        self.note(
            "free_completed",
            [block.address, block.bytes],
            block.stream,
            json!([]),
        );
        self.live.remove(&block.address);
        let request = self.request(Op::Free, block.number, block.bytes, block.stream);
        self.torch.free(&request);
    }

    /// Takes a segment of this size on a stream and keeps a small block in it. Returns the rest as
    /// a block to be freed.
    pub fn pin(&mut self, stream: u64, bytes: u64) -> PlantedBlock {
        const PIN: u64 = 3 << 19;
        let whole = self.take("whole", stream, bytes).expect("memory");
        self.free(whole);
        // A line of its own for each call keeps it from being recognised as a loop.
        self.line = Some(1000 + u64::from(self.next));
        self.take("pin", stream, PIN).expect("memory");
        self.line = None;
        self.take("rest", stream, bytes - PIN).expect("memory")
    }

    /// Frees a block that no stream uses.
    pub fn free(&mut self, block: PlantedBlock) {
        self.drop_early(block);
        self.is_done(block);
    }

    /// Writes the snapshot as PyTorch would.
    pub fn pickle(&self) -> Vec<u8> {
        let segments = self.segments.iter().map(|(address, (size, stream))| {
            let its = self.live.range(*address..address + size);
            let blocks = its.map(|(at, (block, state, frames))| {
                json!({
                    "address": at, "size": block.bytes.next_multiple_of(512), "requested_size": block.bytes,
                    "state": state, "frames": frames,
                })
            });
            json!({
                "address": address, "total_size": size, "stream": stream, "device": 0,
                "segment_type": if *size == 2 << 20 { "small" } else { "large" },
                "blocks": blocks.collect::<Vec<_>>(),
            })
        });
        let segments: Vec<Value> = segments.collect();
        let mut bytes = vec![0x80, 4];
        let root = json!({"segments": segments, "device_traces": [self.entries]});
        pickled(&root, &mut bytes);
        bytes.push(b'.');
        bytes
    }

    /// Opens the snapshot that PyTorch would write.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::of("planted.pickle".as_ref(), &self.pickle()).expect("a snapshot")
    }
}

#[test]
fn a_planted_run_is_served_again_as_it_was() {
    const MIB: u64 = 1 << 20;
    let mut run = Planted::new(1 << 30);
    let first = run.take("load", 0, 300 * MIB).expect("memory");
    let small = run.take("load", 0, 1000).expect("memory");
    run.free(first);
    for _ in 0..5 {
        let block = run.take("step", 0, 310 * MIB).expect("memory");
        run.free(block);
    }
    run.free(small);
    let snapshot = run.snapshot();
    let focus = gpushim_analysis::ledger::Focus::of(&snapshot, None);
    let requests = Requests::of(&snapshot, focus).remove(&0).expect("requests");
    // 300 + 310 + 2 MiB.
    assert_eq!(requests.recorded_reserved(), Some(612 * MIB));
    let torch = super::tests::outcome(super::Policy::Torch, &requests, None);
    assert_eq!(torch.peak_reserved, 612 * MIB);
}
