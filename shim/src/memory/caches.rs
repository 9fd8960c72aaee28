//! The caches of this process: news, questions and searches for memory that go to each of them.
//!
//! A cache is added when it is first used. None is ever removed.

use std::sync::OnceLock;
use std::time::Duration;

use gpushim_alloc::PoolId;

use crate::record::events::Held;

/// A search for memory that caches could free.
#[derive(Clone, Copy, Debug)]
pub struct Search {
    /// The device that is short of memory; `None` for all.
    pub device: Option<i32>,
    /// The pool or the segments that ask. They free no memory themselves.
    pub asking: Option<PoolId>,
    /// True to wait also for work that uses freed memory.
    pub waits: bool,
    /// Time to wait for a thread that looks for memory in the same pool.
    pub patience: Duration,
}

/// Bytes of a device that a cache holds and has not handed out.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unused {
    /// Bytes of the cache that no block holds.
    pub all: u64,
    /// Bytes that serve a `cudaMalloc` without the driver, and bytes that are freed once captures
    /// and graphs end.
    pub cached: u64,
}

/// News that goes to every cache.
#[derive(Clone, Copy, Debug)]
pub enum News {
    /// The capture of this number began.
    CaptureBegan(u64),
    /// The capture of this number ended, and made this graph.
    CaptureEnded(u64, Option<u64>),
    /// The capture of this number was invalidated, or nothing can end it.
    CaptureBroken(u64),
    /// The second graph can now touch all memory that the first one can.
    GraphDerived(u64, u64),
    /// A graph was destroyed: no launch touches its memory any more.
    GraphDestroyed(u64),
    /// Other processes or APIs can reach the memory at this address from now on.
    Exported(u64),
}

/// A cache of device memory. Functions that free memory return the number of bytes that the driver
/// got.
pub trait Cache: Sync {
    /// Gives unused memory back to the driver.
    fn make_room(&self, search: &Search) -> u64;

    /// Gives about `bytes` of a device back, or a little more, without a wait for work.
    fn give_complete(&self, device: i32, bytes: u64, patience: Duration) -> u64;

    /// Gives back memory that has been free for some time: a tick of the background thread.
    fn decay(&self) -> u64;

    /// Number of times that memory of a device was given back; `None` while some is being given
    /// back.
    fn returns(&self, device: i32) -> Option<u64>;

    /// Bytes of a device that are not handed out.
    fn unused(&self, device: i32) -> Unused;

    /// Bytes of a device that are held. Walks all blocks, under each pool's lock.
    fn held(&self, device: i32) -> Held;

    /// Bytes of a device that are held from the driver; `None` while a pool is at work. Waits for
    /// no lock.
    fn held_now(&self, device: i32) -> Option<u64>;

    /// Acts on news of captures, graphs and exports.
    fn note(&self, news: News);
}

/// Position of a cache in [`all`].
#[derive(Clone, Copy, Debug)]
pub enum Place {
    /// Pools of streams and of `cudaMalloc`.
    Pools,
    /// Segments of PyTorch's own allocator.
    Segments,
}

static CACHES: [OnceLock<&'static dyn Cache>; 2] = [const { OnceLock::new() }; 2];

/// Adds a cache; nothing happens if its place is taken.
pub fn add(place: Place, cache: &'static dyn Cache) {
    if let Some(slot) = CACHES.get(place as usize) {
        // A second one is the same.
        let _ = slot.set(cache);
    }
}

/// All caches that were ever used, in the order of their positions.
pub fn all() -> impl Iterator<Item = &'static dyn Cache> {
    CACHES.iter().filter_map(|slot| slot.get().copied())
}

/// True if there is a cache.
pub fn any() -> bool {
    all().next().is_some()
}

/// Passes news to every cache.
pub fn tell(news: News) {
    all().for_each(|cache| cache.note(news));
}
