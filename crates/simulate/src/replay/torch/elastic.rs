//! PyTorch's caching allocator over elastic memory in its expandable segments: the code of the shim
//! over a simulated device.
//!
//! With a limit, new memory is allocated first, and pieces share memory only at the limit. Without
//! a limit, pieces share memory wherever more would be held than was in use at a time, as with
//! `GPUSHIM_ELASTIC=on`. Requests that the shim would serve from host memory are refused here.

use std::fmt;

use gpushim_alloc::Context;
use gpushim_alloc::elastic::{self, Mode, PAGE};
use rustc_hash::FxHashMap;

use super::{Torch, range};
use crate::replay::allocator::{Allocator, DriverTime, OutOfMemory};
use crate::replay::caching::Caching;
use crate::replay::device::{ReplayDevice, Simulated, UNLIMITED};
use gpushim_analysis::requests::{InitialState, Request, Requests};

/// The allocator and the memory of its segments.
pub(in crate::replay) struct Elastic {
    /// PyTorch's view of the memory, which has no limit.
    torch: Caching<Torch>,
    memory: elastic::Elastic<Simulated>,
    capacity: u64,
    /// Address and bytes of each live block, by its number.
    live: FxHashMap<u32, (u64, u64)>,
    /// Sum of the bytes of live blocks.
    total: u64,
    /// Number of each stream, in the order of first use.
    streams: FxHashMap<u64, u8>,
    /// First addresses of the expandable segments.
    ranges: Vec<u64>,
}

/// First address of an expandable segment in the memory: recorded addresses may be changed ones.
fn aligned(base: u64) -> u64 {
    base.next_multiple_of(PAGE)
}

impl fmt::Debug for Elastic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Elastic").finish_non_exhaustive()
    }
}

impl Elastic {
    /// Makes the allocator on a device for some requests.
    pub fn new(device: &ReplayDevice, requests: &Requests) -> Elastic {
        let torch = Torch::new(requests, Some(true));
        let capacity = device.limit.unwrap_or(UNLIMITED);
        let mode = match device.limit {
            Some(_) => Mode::Pressure,
            None => Mode::Least,
        };
        Elastic {
            torch: Caching::new(torch, UNLIMITED, requests.blocks()),
            memory: elastic::Elastic::new(
                Simulated::new(capacity, device.lag),
                (0, Context(1)),
                mode,
            ),
            capacity,
            live: FxHashMap::default(),
            total: 0,
            streams: FxHashMap::default(),
            ranges: Vec::new(),
        }
    }

    /// Backs a block that PyTorch has handed out with memory.
    fn allocated(&mut self, block: u32, stream: Option<u64>) -> Result<(), OutOfMemory> {
        let place = self.torch.place(block).zip(self.torch.region(block));
        let Some(((address, bytes), (base, _))) = place else {
            return Ok(());
        };
        let address = self.map(base, address, bytes);
        let stream = stream.map(|stream| self.number(stream));
        self.total += bytes;
        self.live.insert(block, (address, bytes));
        let allocation = self.memory.allocated(address, bytes, self.total, stream);
        if allocation.missing > 0 {
            self.freed(block);
            return Err(OutOfMemory);
        }
        if self.torch.rules().is_of_own_pool(block) {
            // A graph may use the block without a request.
            self.memory.pin(address);
        }
        Ok(())
    }

    /// Maps the part of an expandable segment that a block is in. Returns the block's address there.
    fn map(&mut self, base: u64, address: u64, bytes: u64) -> u64 {
        let address = aligned(base) + (address - base);
        // Ranges of recorded segments may overlap: the first one counts.
        if !self.memory.has_range(address, bytes) {
            self.ranges.push(base);
            self.memory.add_range(aligned(base), range::BYTES, true);
        }
        self.memory.map(address, bytes);
        address
    }

    /// Handles the end of a block according to PyTorch.
    fn freed(&mut self, block: u32) {
        if let Some((address, bytes)) = self.live.remove(&block) {
            self.total -= bytes;
            let is_elsewhere = self.torch.is_late(block);
            self.memory.freed(address, bytes, self.total, is_elsewhere);
        }
    }

    /// Number of a stream; all streams beyond the first 255 share the number 255.
    fn number(&mut self, stream: u64) -> u8 {
        let next = self.streams.len().min(usize::from(u8::MAX)) as u8;
        *self.streams.entry(stream).or_insert(next)
    }

    /// Unmaps the parts of segments that PyTorch has unmapped.
    fn follow(&mut self) {
        for (address, bytes) in self.torch.dropped() {
            let of = |base: &u64| (*base..*base + range::BYTES).contains(&address);
            if let Some(base) = self.ranges.iter().copied().find(of) {
                self.memory.unmap(aligned(base) + (address - base), bytes);
            }
        }
    }
}

impl Allocator for Elastic {
    fn allocate(&mut self, request: &Request) -> Result<(), OutOfMemory> {
        self.memory.pages().driver.advance();
        self.torch.allocate(request)?;
        self.follow();
        let allocation = self.allocated(request.block, request.stream);
        if allocation.is_err() {
            self.torch.release(request.block);
        }
        allocation
    }

    fn free(&mut self, request: &Request) {
        self.memory.pages().driver.advance();
        self.freed(request.block);
        self.torch.free(request);
    }

    fn done(&mut self, request: &Request) {
        self.memory.pages().driver.advance();
        self.torch.done(request);
    }

    fn trim(&mut self, request: &Request) {
        self.memory.pages().driver.advance();
        self.torch.trim(request);
        self.follow();
    }

    fn begin_with(&mut self, given: &InitialState) -> bool {
        if !self.torch.begin_with(given) {
            return false;
        }
        // The blocks of the beginning are never refused.
        self.memory.pages().driver.set_capacity(UNLIMITED);
        for block in given.blocks.iter().chain(&given.waiting) {
            let _ = self.allocated(block.block, block.stream);
        }
        for block in &given.waiting {
            self.freed(block.block);
        }
        self.memory.pages().driver.set_capacity(self.capacity);
        true
    }

    fn reserved(&self) -> u64 {
        self.memory.pages().driver.held()
    }

    fn largest_free(&self) -> u64 {
        self.torch.largest_free()
    }

    fn driver_time(&self) -> DriverTime {
        self.memory.pages().driver.driver_time()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::tests::{MIB, made};
    use crate::replay::{Policy, run};
    use gpushim_analysis::requests::{InitialBlock, InitialSegment, Op};
    use gpushim_recording::Segment;

    /// At most 50 MiB live. The 30 MiB do not fit where the first 20 MiB were.
    fn steps() -> Requests {
        made(&[
            (Op::Allocate, 0, 20 * MIB),
            (Op::Allocate, 1, 20 * MIB),
            (Op::Free, 0, 20 * MIB),
            (Op::Allocate, 2, 30 * MIB),
            (Op::Free, 2, 30 * MIB),
            (Op::Allocate, 3, 20 * MIB),
        ])
    }

    fn outcome(requests: &Requests, limit: Option<u64>, lag: u64) -> crate::replay::Outcome {
        let device = ReplayDevice {
            limit,
            lag,
            ..ReplayDevice::default()
        };
        run(
            requests,
            &mut *Policy::TorchElastic.build(&device, requests),
        )
    }

    #[test]
    fn pages_without_a_block_serve_other_segments() {
        let requests = steps();
        let natively = run(
            &requests,
            &mut *Policy::TorchExpandable.build(&ReplayDevice::default(), &requests),
        );
        assert_eq!(natively.peak_reserved, 80 * MIB);
        let least = outcome(&requests, None, 0);
        assert_eq!((least.peak_reserved, least.out_of_memory), (50 * MIB, 0));
        let limited = outcome(&requests, Some(52 * MIB), 0);
        assert_eq!(
            (limited.peak_reserved, limited.out_of_memory),
            (50 * MIB, 0)
        );
        let ample = outcome(&requests, Some(70 * MIB), 0);
        assert_eq!(ample.peak_reserved, 70 * MIB);
        // A piece that shares memory needs no more calls than one with memory of its own.
        assert!(ample.driver_calls >= least.driver_calls, "{ample:?}");
    }

    #[test]
    fn memory_behind_unfinished_work_moves_after_a_wait_or_in_its_stream() {
        let requests = steps();
        for lag in [0, 100] {
            let limited = outcome(&requests, Some(52 * MIB), lag);
            assert_eq!(
                (limited.peak_reserved, limited.out_of_memory),
                (50 * MIB, 0)
            );
        }
    }

    #[test]
    fn a_step_that_repeats_calls_nothing() {
        let step = [
            (Op::Allocate, 0, 20 * MIB),
            (Op::Free, 0, 20 * MIB),
            (Op::Allocate, 1, 30 * MIB),
            (Op::Free, 1, 30 * MIB),
        ];
        let calls = |times: usize| {
            let requests = made(&step.repeat(times));
            outcome(&requests, Some(32 * MIB), 100).driver_calls
        };
        assert_eq!(calls(2), calls(20));
    }

    #[test]
    fn a_page_of_two_blocks_that_were_there_is_spare_after_both() {
        let requests = made(&[(Op::Allocate, 0, 2 * MIB), (Op::Allocate, 1, MIB)]);
        let base = 1 << 30;
        let block = |block, address, bytes| InitialBlock {
            address,
            bytes,
            block,
            stream: Some(0),
        };
        let given = InitialState {
            segments: vec![InitialSegment {
                address: base,
                bytes: 20 * MIB,
                pool: 0,
                of: Segment {
                    is_expandable: true,
                    ..Segment::default()
                },
            }],
            blocks: vec![
                block(0, base, 5 * MIB / 2),
                block(1, base + 5 * MIB / 2, 3 * MIB / 2),
            ],
            waiting: Vec::new(),
        };
        let mut elastic = Elastic::new(&ReplayDevice::default(), &requests);
        assert!(elastic.begin_with(&given));
        let free = |block| Request {
            op: Op::Free,
            block,
            bytes: MIB,
            stream: Some(0),
            thread: 1,
            ns: 1,
        };
        let spare = |elastic: &Elastic| elastic.memory.stats().spare / (2 * MIB);
        elastic.free(&free(0));
        assert_eq!(spare(&elastic), 1, "the second block is on a page, too");
        elastic.free(&free(1));
        assert_eq!(spare(&elastic), 2);
    }

    #[test]
    fn what_is_refused_leaves_nothing_behind() {
        let requests = made(&[
            (Op::Allocate, 0, 20 * MIB),
            (Op::Allocate, 1, 20 * MIB),
            (Op::Free, 0, 20 * MIB),
            (Op::Allocate, 2, 30 * MIB),
        ]);
        let seen = outcome(&requests, Some(30 * MIB), 0);
        assert_eq!((seen.out_of_memory, seen.peak_reserved), (1, 30 * MIB));
    }
}
