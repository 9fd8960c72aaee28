//! PyTorch's own allocator over pages that come and go: its segments are ranges of addresses, and memory is only where
//! a block is.
//!
//! A page without a block behind finished work is hollow: it may serve another place, and comes back before PyTorch
//! hands out a block on it. Without a limit a hollow page always goes before a new one is got, which holds the least;
//! with one new pages are got first, and pages move only when the limit is reached.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use super::Torch;
use crate::replay::allocator::{Allocator, DriverTime, OutOfMemory};
use crate::replay::bytes::Bytes;
use crate::replay::caching::Caching;
use crate::replay::device::{PAGE, ReplayDevice, UNLIMITED};
use crate::requests::{InitialState, Request, Requests};

/// The allocator, and which of its pages have memory.
#[derive(Debug)]
pub(in crate::replay) struct Elastic {
    /// What PyTorch believes: its memory has no end.
    torch: Caching<Torch>,
    device: Bytes,
    /// Whether pages move before new ones are got.
    is_least: bool,
    lag: u64,
    now: u64,
    /// By the number of the page.
    pages: FxHashMap<u64, Page>,
    /// Pages with memory and without a block, by the time of the last free on them.
    hollow: BTreeSet<(u64, u64)>,
}

/// A page of a segment.
#[derive(Clone, Copy, Debug, Default)]
struct Page {
    blocks: u32,
    has_memory: bool,
    /// A graph may use it without telling: its memory stays.
    is_pinned: bool,
    hollow_since: u64,
}

impl Elastic {
    /// On this device, for these requests.
    pub fn new(device: &ReplayDevice, requests: &Requests) -> Elastic {
        let torch = Torch::with_segments(requests);
        Elastic {
            torch: Caching::new(torch, UNLIMITED, requests.blocks()),
            device: Bytes::new(device.limit.unwrap_or(UNLIMITED)),
            is_least: device.limit.is_none(),
            lag: device.lag,
            now: 0,
            pages: FxHashMap::default(),
            hollow: BTreeSet::new(),
        }
    }

    /// A block is in these pages from now on.
    fn enter(&mut self, pages: std::ops::Range<u64>, is_pinned: bool) -> Result<(), OutOfMemory> {
        let mut missing = Vec::new();
        for number in pages.clone() {
            let page = self.pages.entry(number).or_default();
            if page.blocks == 0 && page.has_memory {
                self.hollow.remove(&(page.hollow_since, number));
            }
            page.blocks += 1;
            page.is_pinned |= is_pinned;
            if !page.has_memory {
                missing.push(number);
            }
        }
        let mut before = None;
        for number in missing {
            if let Err(refused) = self.bring() {
                self.leave(pages);
                return Err(refused);
            }
            // Pages side by side are enabled by one call.
            self.device
                .map_one(before.is_none_or(|before| before + 1 != number));
            before = Some(number);
            self.pages.entry(number).or_default().has_memory = true;
        }
        Ok(())
    }

    /// Memory for one page.
    fn bring(&mut self) -> Result<(), OutOfMemory> {
        if self.is_least && self.hollow_out() {
            return Ok(());
        }
        match self.device.create(PAGE) {
            Err(_) if !self.hollow_out() => Err(OutOfMemory),
            _ => Ok(()),
        }
    }

    /// Takes the memory of the page that was hollow for longest; false if no page is that the device is done with.
    fn hollow_out(&mut self) -> bool {
        let Some((since, number)) = self.hollow.first().copied() else {
            return false;
        };
        if self.lag > 0 && since.saturating_add(self.lag) > self.now {
            return false;
        }
        self.hollow.remove(&(since, number));
        self.device.unmap_one();
        self.pages.entry(number).or_default().has_memory = false;
        true
    }

    /// A block is in these pages no more.
    fn leave(&mut self, pages: std::ops::Range<u64>) {
        for number in pages {
            let page = self.pages.entry(number).or_default();
            page.blocks = page.blocks.saturating_sub(1);
            if page.blocks == 0 && page.has_memory && !page.is_pinned {
                page.hollow_since = self.now;
                self.hollow.insert((self.now, number));
            }
        }
    }

    /// A block may have come back: by `free` or by `done`.
    fn come_back(&mut self, request: &Request, how: impl FnOnce(&mut Caching<Torch>)) {
        self.now += 1;
        let before = self.torch.place(request.block);
        how(&mut self.torch);
        if let Some(place) = before.filter(|_| self.torch.place(request.block).is_none()) {
            self.leave(pages(place));
        }
    }
}

/// The numbers of the pages that bytes at an address are in.
fn pages((address, bytes): (u64, u64)) -> std::ops::Range<u64> {
    address / PAGE..address.saturating_add(bytes).div_ceil(PAGE)
}

impl Allocator for Elastic {
    fn allocate(&mut self, request: &Request) -> Result<(), OutOfMemory> {
        self.now += 1;
        self.torch.allocate(request)?;
        let Some(place) = self.torch.place(request.block) else {
            return Ok(());
        };
        let is_pinned = self.torch.rules().is_of_own_pool(request.block);
        let entered = self.enter(pages(place), is_pinned);
        if entered.is_err() {
            self.torch.release(request.block);
        }
        entered
    }

    fn free(&mut self, request: &Request) {
        self.come_back(request, |torch| torch.free(request));
    }

    fn done(&mut self, request: &Request) {
        self.come_back(request, |torch| torch.done(request));
    }

    fn trim(&mut self, request: &Request) {
        self.now += 1;
        self.torch.trim(request);
        if request.stream.is_none() {
            while self.hollow_out() {
                self.device.destroy(PAGE);
            }
        }
    }

    fn begin_with(&mut self, given: &InitialState) -> bool {
        if !self.torch.begin_with(given) {
            return false;
        }
        for block in given.blocks.iter().chain(&given.waiting) {
            // As much as comes back with it, which is more than was asked for.
            let Some(place) = self.torch.place(block.block) else {
                continue;
            };
            let is_pinned = self.torch.rules().is_of_own_pool(block.block);
            for number in pages(place) {
                let page = self.pages.entry(number).or_default();
                page.blocks += 1;
                page.is_pinned |= is_pinned;
                // What there was is not refused.
                if !page.has_memory {
                    page.has_memory = true;
                    self.device.had(PAGE);
                }
            }
        }
        true
    }

    fn reserved(&self) -> u64 {
        self.device.held
    }

    fn largest_free(&self) -> u64 {
        self.torch.largest_free()
    }

    fn driver_time(&self) -> DriverTime {
        self.device.time
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::tests::{MIB, made};
    use crate::replay::{Policy, run};
    use crate::requests::{InitialBlock, InitialSegment, Op};

    /// 20 MiB, then 10 MiB that are cut from another segment, while 20 MiB are free.
    fn steps() -> Requests {
        made(&[
            (Op::Allocate, 0, 20 * MIB),
            (Op::Free, 0, 20 * MIB),
            (Op::Allocate, 1, 30 * MIB),
            (Op::Free, 1, 30 * MIB),
            (Op::Allocate, 2, 20 * MIB),
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
            &mut *Policy::Torch.build(&ReplayDevice::default(), &requests),
        );
        assert_eq!(natively.peak_reserved, 50 * MIB);
        let least = outcome(&requests, None, 0);
        assert_eq!((least.peak_reserved, least.out_of_memory), (30 * MIB, 0));
        let limited = outcome(&requests, Some(32 * MIB), 0);
        assert_eq!(
            (limited.peak_reserved, limited.out_of_memory),
            (32 * MIB, 0)
        );
        assert!(limited.driver_calls < least.driver_calls, "{limited:?}");
    }

    #[test]
    fn pages_behind_unfinished_work_do_not_move() {
        let requests = steps();
        assert_eq!(outcome(&requests, None, 100).peak_reserved, 50 * MIB);
        assert_eq!(outcome(&requests, Some(32 * MIB), 100).out_of_memory, 1);
    }

    #[test]
    fn a_page_of_two_blocks_that_were_there_is_hollow_after_both() {
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
                of: Default::default(),
            }],
            // The first one has the 512 KiB before the second one, too, as they were not worth a cut.
            blocks: vec![
                block(0, base, 2 * MIB),
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
        elastic.free(&free(0));
        assert_eq!(
            elastic.hollow.len(),
            1,
            "the second block is on the second page"
        );
        elastic.free(&free(1));
        assert_eq!(elastic.hollow.len(), 2);
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
