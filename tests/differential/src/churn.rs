//! Threads that allocate, use and free memory at once. Beside them streams capture, and contexts
//! are made and ended.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::api::{Api, IpcHandle, Touch};
use crate::judge::OUT_OF_MEMORY;
use crate::op::{Ending, Op, Step};
use crate::random::Random;
use crate::world::World;

/// Blocks that one thread holds, at most.
const HELD: usize = 8;
/// Sizes of blocks, in bytes. A pool that cannot reuse free memory would grow by more than one step
/// allows.
const SIZES: [u64; 4] = [300 << 10, 2 << 20, 6 << 20, 16 << 20];
/// Blocks up to this many bytes are exported: the stand-in copies them.
const EXPORTED: u64 = 2 << 20;
/// Allocations and frees of one thread.
const ROUNDS: u32 = 160;
/// Duration of the work before the free of a block, in nanoseconds.
const WORK: u64 = 20_000;
/// Bytes at the start of a block that are filled and read.
const LOOK: usize = 64;
/// Pause between two contexts.
const PAUSE: Duration = Duration::from_micros(100);
/// `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: u32 = 1;
/// Captures in this mode forbid nothing.
const RELAXED: u32 = 2;

/// Calls that did not go as they should.
#[derive(Default)]
struct Counts {
    /// Requests of memory that were refused for the want of it.
    refused: AtomicU64,
    /// Frees of live blocks that failed.
    unfreed: AtomicU64,
    /// Blocks with other contents than were written.
    wrong: AtomicU64,
    /// Captures that failed to begin, to take work, or to end.
    broken: AtomicU64,
    /// Other calls that failed.
    failed: AtomicU64,
}

impl Counts {
    fn request(&self, code: u64) -> bool {
        match code {
            0 => return true,
            OUT_OF_MEMORY => self.refused.fetch_add(1, Ordering::Relaxed),
            _ => self.failed.fetch_add(1, Ordering::Relaxed),
        };
        false
    }
}

/// One thread's part in it.
struct Part<'a> {
    api: &'static Api,
    counts: &'a Counts,
    context: u64,
    random: Random,
    exports: bool,
}

struct Block {
    address: u64,
    bytes: u64,
    is_async: bool,
    value: u8,
}

/// Calls a function of the driver; its code.
macro_rules! call {
    ($part:expr, $name:ident $(, $arg:expr)*) => {{
        // SAFETY: what is pointed to lives until the call returns, and is of the size that the
        // driver expects.
        let code = unsafe { ($part.api.$name)($($arg),*) };
        code as u32 as u64
    }};
}

fn count(counter: &AtomicU64, code: u64) {
    counter.fetch_add(u64::from(code != 0), Ordering::Relaxed);
}

impl Part<'_> {
    /// Makes the context current, and a stream in it.
    fn begin(&self) -> u64 {
        let mut stream = 0;
        count(&self.counts.failed, call!(self, ctx_set, self.context));
        let code = call!(self, stream_create, &mut stream, NON_BLOCKING);
        count(&self.counts.failed, code);
        stream
    }

    fn end(&self, stream: u64) {
        count(&self.counts.failed, call!(self, stream_destroy, stream));
    }

    fn allocate(&mut self, stream: u64) -> Option<Block> {
        let bytes = self.random.pick(&SIZES)?;
        let is_async = self.random.chance(400);
        let value = 1 + self.random.below(255) as u8;
        let mut address = 0;
        let code = match is_async {
            true => call!(self, alloc_async, &mut address, bytes as usize, stream),
            false => call!(self, alloc, &mut address, bytes as usize),
        };
        if !self.counts.request(code) {
            return None;
        }
        let code = call!(self, set_async, address, value, LOOK, stream);
        count(&self.counts.failed, code);
        if self.exports && !is_async && bytes <= EXPORTED {
            let mut handle = IpcHandle([0; 8]);
            let code = call!(self, ipc_get, &mut handle, address);
            count(&self.counts.failed, code);
        }
        Some(Block {
            address,
            bytes,
            is_async,
            value,
        })
    }

    /// Frees a block under work on it.
    fn free(&mut self, block: Block, stream: u64) {
        self.look_and_use(&block, stream);
        self.free_used(&block, stream);
    }

    /// Now and then looks at a block's contents; then work uses it.
    fn look_and_use(&mut self, block: &Block, stream: u64) {
        if self.random.chance(250) {
            let mut seen = [0; LOOK];
            let waited = call!(self, stream_sync, stream);
            let read = call!(self, copy_to_host, seen.as_mut_ptr(), block.address, LOOK);
            count(&self.counts.failed, waited | read);
            let is_right = seen.iter().all(|byte| *byte == block.value);
            count(&self.counts.wrong, u64::from(!is_right));
        }
        let touch = Touch {
            address: block.address,
            bytes: block.bytes,
            writes: 1,
        };
        let worked = call!(self, kernel, stream, WORK, 1, &touch);
        count(&self.counts.failed, worked);
    }

    fn free_used(&self, block: &Block, stream: u64) {
        let code = match block.is_async {
            true => call!(self, free_async, block.address, stream),
            false => call!(self, free, block.address),
        };
        count(&self.counts.unfreed, code);
    }

    fn churn(mut self) {
        let stream = self.begin();
        let mut held: [Option<Block>; HELD] = [const { None }; HELD];
        for _ in 0..ROUNDS {
            let at = self.random.index(HELD);
            match held[at].take() {
                Some(block) => self.free(block, stream),
                None => held[at] = self.allocate(stream),
            }
        }
        for block in held.into_iter().flatten() {
            self.free(block, stream);
        }
        count(&self.counts.failed, call!(self, stream_sync, stream));
        self.end(stream);
    }

    /// Captures over and over: work on a block, memory of the graph, and in the relaxed mode other
    /// memory as well.
    fn capture(mut self, over: &AtomicBool) {
        let (mut stream, mut block) = (self.begin(), 0);
        if !self.counts.request(call!(self, alloc, &mut block, LOOK)) {
            return self.end(stream);
        }
        while !over.load(Ordering::Relaxed) {
            // Memory freed on the stream may be waited for while it captures.
            if let Some(other) = self.allocate(stream) {
                self.free(other, stream);
            }
            let mode = 1 + self.random.below(2) as u32;
            self.capture_once(stream, block, mode);
            if self.random.chance(50) {
                self.end(stream);
                stream = self.begin();
            }
        }
        count(&self.counts.failed, call!(self, stream_sync, stream));
        count(&self.counts.unfreed, call!(self, free, block));
        self.end(stream);
    }

    fn capture_once(&mut self, stream: u64, block: u64, mode: u32) {
        let (mut graph, mut inner, mut beside) = (0, 0, 0);
        let begun = call!(self, capture_begin, stream, mode);
        count(&self.counts.broken, begun);
        let set = call!(self, set_async, block, 7, LOOK, stream);
        count(&self.counts.broken, set);
        if call!(self, alloc_async, &mut inner, 100_000, stream) == 0 {
            let freed = call!(self, free_async, inner, stream);
            count(&self.counts.broken, freed);
        }
        if mode == RELAXED
            && self
                .counts
                .request(call!(self, alloc, &mut beside, 3 << 20))
        {
            count(&self.counts.unfreed, call!(self, free, beside));
        }
        let ended = call!(self, capture_end, stream, &mut graph);
        count(&self.counts.broken, ended);
        if ended == 0 {
            count(&self.counts.failed, call!(self, graph_destroy, graph));
        }
    }

    /// Contexts come and go, with blocks in them, until the others are over.
    fn come_and_go(mut self, ending: Ending, device: i32, over: &AtomicBool) {
        while !over.load(Ordering::Relaxed) {
            let (mut own, mut context) = (0, 0);
            let made = match ending {
                Ending::None => return,
                Ending::Contexts => call!(self, ctx_create, &mut context, 0, device),
                Ending::Green => {
                    let made = call!(self, green_create, &mut own, 1, device, 1);
                    made | call!(self, green_context, &mut context, own)
                }
                Ending::Primary => call!(self, primary_retain, &mut context, device),
            };
            count(&self.counts.failed, made | call!(self, ctx_set, context));
            let blocks: Vec<Block> = (0..self.random.below(4))
                .filter_map(|_| self.allocate(0))
                .collect();
            let is_green = ending == Ending::Green;
            for block in &blocks {
                self.look_and_use(block, 0);
                // The free of memory of the primary context does not wait for a green one's work.
                let waited = if is_green { call!(self, ctx_sync) } else { 0 };
                count(&self.counts.failed, waited);
                // Memory of a green context, and stream-ordered memory, would stay.
                if block.is_async || is_green || self.random.chance(500) {
                    self.free_used(block, 0);
                }
            }
            let synchronised = call!(self, ctx_sync);
            let ended = match ending {
                Ending::Green => call!(self, green_destroy, own),
                Ending::Primary => call!(self, primary_release, device),
                _ => call!(self, ctx_destroy, context),
            };
            count(&self.counts.failed, synchronised | ended);
            std::thread::sleep(PAUSE);
        }
    }
}

/// The device whose contexts come and go. `None`: there is none for such an end.
fn device_for(world: &World, ending: Ending, random: &mut Random) -> Option<u8> {
    let devices: Vec<u8> = (0..world.devices)
        .filter(|device| {
            let claims = world.claims[usize::from(*device)];
            match ending {
                Ending::Green => claims > 0,
                Ending::Primary => claims == 0,
                _ => true,
            }
        })
        .collect();
    random.pick(&devices)
}

/// Most bytes of each device that were in use at a time since the last question.
fn peaks(world: &World) -> Vec<u64> {
    let one = |device| {
        let mut bytes = 0;
        // SAFETY: it is ours to write.
        unsafe { (world.api.peak)(device, &mut bytes) };
        bytes
    };
    (0..world.devices.into()).map(one).collect()
}

/// Resets the high-water marks of a device's current pool: chance decided how far they rose.
fn forget_marks(api: &Api, device: i32) {
    let mut pool = 0;
    // SAFETY: both are ours, and of the size that the driver expects.
    unsafe {
        (api.current_pool)(&mut pool, device);
        for mark in [6, 8] {
            (api.pool_set)(pool, mark, &mut 0);
        }
    }
}

/// Runs the threads. Seen: the calls that failed, by kind; the growth of the memory in use, in MiB;
/// and 1 if a device was nearly full.
pub fn crowd(world: &mut World, step: &Step) -> bool {
    let Op::Crowd {
        threads,
        capturing,
        ending,
        exports,
        seed,
    } = step.op
    else {
        return false;
    };
    // A free in a green context does not wait for its work.
    let contexts = world.contexts.iter().zip(world.greens);
    let alive: Vec<u64> = contexts
        .filter(|(context, green)| **context != 0 && *green == 0)
        .map(|(context, _)| *context)
        .collect();
    let mut random = Random::new(seed.into());
    let device = device_for(world, ending, &mut random);
    let is_kept = capturing > 0 && world.greens.iter().any(|green| *green != 0);
    let is_quiet = world.captures.is_empty() && !is_kept;
    let (Some(device), true, false) = (device, is_quiet, alive.is_empty()) else {
        return false;
    };
    let (counts, over) = (Counts::default(), AtomicBool::new(false));
    let part = |number: u8, context: u64| Part {
        api: world.api,
        counts: &counts,
        context,
        random: Random::new(u64::from(seed) << 8 | u64::from(number)),
        exports,
    };
    peaks(world);
    let before = peaks(world);
    std::thread::scope(|scope| {
        let over = &over;
        let context = |number: u8| alive[usize::from(number) % alive.len()];
        let churning: Vec<_> = (0..threads)
            .map(|number| {
                let part = part(number, context(number));
                scope.spawn(move || part.churn())
            })
            .collect();
        for number in 0..capturing {
            let part = part(100 + number, context(number));
            scope.spawn(move || part.capture(over));
        }
        let coming = part(200, 0);
        scope.spawn(move || coming.come_and_go(ending, device.into(), over));
        // A panicked thread leaves a count that is too low. Its panic is seen on standard error.
        churning.into_iter().for_each(|thread| drop(thread.join()));
        over.store(true, Ordering::Relaxed);
    });
    (0..world.devices.into()).for_each(|device| forget_marks(world.api, device));
    let after = peaks(world);
    let grown = after
        .iter()
        .zip(before)
        .map(|(after, before)| after - before);
    let grown: u64 = grown.sum();
    let is_short = after
        .iter()
        .any(|after| after + 2 * SIZES[3] > world.memory);
    let Counts {
        refused,
        unfreed,
        wrong,
        broken,
        failed,
    } = counts;
    let counted = [refused, unfreed, wrong, broken, failed].map(AtomicU64::into_inner);
    world.seen.extend(counted);
    world.seen.extend([grown >> 20, u64::from(is_short)]);
    true
}
