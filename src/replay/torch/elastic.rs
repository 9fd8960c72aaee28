//! PyTorch's own allocator over memory that comes and goes: its segments are ranges of addresses, and memory is only where a
//! block is.
//!
//! Memory comes in pieces, of the sizes that `GPUSHIM_ELASTIC` has. A piece without a block behind finished work is
//! hollow: it may serve another place, and memory comes back before PyTorch hands out a block there. With a limit new
//! pieces are got first, and memory moves only when the limit is reached. Without one, memory moves where otherwise more would
//! be held than was in use at a time, as with `GPUSHIM_ELASTIC=on`.

use std::collections::BTreeSet;
use std::ops::Range;

use gpushim_alloc::elastic::{SIZES, fitting, size_for};
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
    /// Whether memory moves without a limit, too.
    is_least: bool,
    lag: u64,
    now: u64,
    /// By the number of the page.
    pages: FxHashMap<u64, Page>,
    /// By the number of the first page.
    pieces: FxHashMap<u64, Piece>,
    /// Pieces without a block, by size: the time of the last free on them, and the first page.
    hollow: [BTreeSet<(u64, u64)>; SIZES],
    /// Bytes of pieces that are not hollow, and the most that they were.
    kept: u64,
    most_kept: u64,
}

/// A page of a segment.
#[derive(Clone, Copy, Debug, Default)]
struct Page {
    blocks: u32,
    /// A graph may use it without telling: its memory stays.
    is_pinned: bool,
    /// The first page of the piece that is its memory.
    piece: Option<u64>,
}

/// Memory that moves as one.
#[derive(Clone, Copy, Debug)]
struct Piece {
    /// As [`SIZES`] has it.
    size: usize,
    /// Its pages that have a block or are pinned.
    kept: u64,
    hollow_since: u64,
}

impl Piece {
    fn new(size: usize) -> Piece {
        Piece {
            size,
            kept: 1 << size,
            hollow_since: 0,
        }
    }
}

fn bytes_of(size: usize) -> u64 {
    PAGE << size
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
            pieces: FxHashMap::default(),
            hollow: Default::default(),
            kept: 0,
            most_kept: 0,
        }
    }

    /// A block is in these pages from now on.
    fn enter(&mut self, pages: Range<u64>, is_pinned: bool) -> Result<(), OutOfMemory> {
        for number in pages.clone() {
            let page = self.pages.entry(number).or_default();
            let was_kept = page.blocks > 0 || page.is_pinned;
            page.blocks += 1;
            page.is_pinned |= is_pinned;
            if let Some(first) = page.piece.filter(|_| !was_kept)
                && let Some(piece) = self.pieces.get_mut(&first)
            {
                if piece.kept == 0 {
                    self.hollow[piece.size].remove(&(piece.hollow_since, first));
                    self.kept += bytes_of(piece.size);
                }
                piece.kept += 1;
            }
        }
        let size = size_for((pages.end - pages.start) as usize, SIZES - 1);
        let mut at = pages.start;
        while at < pages.end {
            let room = self.without_memory(at..pages.end.min(at + (1 << size)));
            if room == 0 {
                at += 1;
                continue;
            }
            let Ok(size) = self.bring(size.min(fitting(room))) else {
                self.leave(pages);
                return Err(OutOfMemory);
            };
            self.device.map_one();
            self.put(at, Piece::new(size));
            at += 1 << size;
        }
        Ok(())
    }

    /// How many pages have no memory before the first that has.
    fn without_memory(&self, mut pages: Range<u64>) -> usize {
        let has = |number: u64| {
            let page = self.pages.get(&number);
            page.is_some_and(|page| page.piece.is_some())
        };
        let first = pages.clone().find(|number| has(*number));
        pages.end = first.unwrap_or(pages.end);
        (pages.end - pages.start) as usize
    }

    /// Memory is there from a page on.
    fn put(&mut self, first: u64, piece: Piece) {
        self.pieces.insert(first, piece);
        self.kept += bytes_of(piece.size);
        self.most_kept = self.most_kept.max(self.kept);
        for number in first..first + (1 << piece.size) {
            self.pages.entry(number).or_default().piece = Some(first);
        }
    }

    /// Memory of this size or smaller; its size.
    fn bring(&mut self, size: usize) -> Result<usize, OutOfMemory> {
        let kept = self.most_kept.max(self.kept + bytes_of(size));
        if self.is_least
            && self.device.held + bytes_of(size) > kept
            && let Some(size) = self.reuse(size)
        {
            return Ok(size);
        }
        if self.device.create(bytes_of(size)).is_ok() {
            return Ok(size);
        }
        let reused = self.reuse(size);
        reused
            .or_else(|| self.create_up_to(size))
            .ok_or(OutOfMemory)
    }

    fn create_up_to(&mut self, size: usize) -> Option<usize> {
        let mut sizes = (0..=size).rev();
        sizes.find(|size| self.device.create(bytes_of(*size)).is_ok())
    }

    /// The memory of hollow pieces, as one of this size or smaller.
    fn reuse(&mut self, size: usize) -> Option<usize> {
        if self.hollow_out(size) {
            return Some(size);
        }
        // A larger one is made smaller, or smaller ones one.
        let mut pages = 0;
        while pages < 1 << size {
            let mut others = (size + 1..SIZES).chain((0..size).rev());
            let Some(other) = others.find(|other| self.hollow_out(*other)) else {
                break;
            };
            self.device.destroy(bytes_of(other));
            pages += 1 << other;
        }
        let size = size.min(fitting(pages));
        (pages > 0).then(|| self.create_up_to(size))?
    }

    /// Takes the memory of the piece of this size that was hollow for longest; false if there is none that the device is done
    /// with.
    fn hollow_out(&mut self, size: usize) -> bool {
        let Some((since, first)) = self.hollow[size].first().copied() else {
            return false;
        };
        if self.lag > 0 && since.saturating_add(self.lag) > self.now {
            return false;
        }
        self.hollow[size].remove(&(since, first));
        self.device.unmap_one();
        self.pieces.remove(&first);
        for number in first..first + (1 << size) {
            self.pages.entry(number).or_default().piece = None;
        }
        true
    }

    /// A block is in these pages no more.
    fn leave(&mut self, pages: Range<u64>) {
        for number in pages {
            let page = self.pages.entry(number).or_default();
            page.blocks = page.blocks.saturating_sub(1);
            if page.blocks > 0 || page.is_pinned {
                continue;
            }
            let Some(first) = page.piece else { continue };
            let Some(piece) = self.pieces.get_mut(&first) else {
                continue;
            };
            piece.kept = piece.kept.saturating_sub(1);
            if piece.kept == 0 {
                piece.hollow_since = self.now;
                self.kept -= bytes_of(piece.size);
                self.hollow[piece.size].insert((self.now, first));
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
            for size in 0..SIZES {
                while self.hollow_out(size) {
                    self.device.destroy(bytes_of(size));
                }
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
                if page.piece.is_none() {
                    self.put(number, Piece::new(0));
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
            (30 * MIB, 0)
        );
        let ample = outcome(&requests, Some(50 * MIB), 0);
        assert_eq!(ample.peak_reserved, 50 * MIB);
        assert!(ample.driver_calls < least.driver_calls, "{ample:?}");
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
            elastic.hollow[0].len(),
            1,
            "the second block is on the second page"
        );
        elastic.free(&free(1));
        assert_eq!(elastic.hollow[0].len(), 2);
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
