//! The caches of this process: news, questions and searches for memory that concern each of them.
//!
//! A cache is added when it is first used. None is ever removed.

use std::sync::OnceLock;
use std::time::Duration;

use gpushim_alloc::PoolId;

use crate::record::events::Held;

/// A search for memory that caches could give back.
#[derive(Clone, Copy, Debug)]
pub struct Search {
    /// The device that is short of it; `None` for all.
    pub device: Option<i32>,
    /// The pool or the segments that ask, which give none themselves.
    pub asking: Option<PoolId>,
    /// Also waits for work that uses what is free.
    pub waits: bool,
    /// The time to wait for a thread that looks for memory in the same pool.
    pub patience: Duration,
}

/// Bytes that a cache holds of a device and has not handed out.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unused {
    /// Every byte that the cache has and no block holds.
    pub all: u64,
    /// Bytes for a `cudaMalloc` without the driver, and bytes that go back once captures and graphs end.
    pub cached: u64,
}

/// News that every cache must have.
#[derive(Clone, Copy, Debug)]
pub enum News {
    /// A capture began, of this number.
    CaptureBegan(u64),
    /// A capture ended, and made this graph.
    CaptureEnded(u64, Option<u64>),
    /// A capture was invalidated, or nothing can end it.
    CaptureBroken(u64),
    /// The second graph can touch whatever the first one can.
    GraphDerived(u64, u64),
    /// A graph was destroyed: no launch touches its memory any more.
    GraphDestroyed(u64),
    /// Others reach the memory at this address from now on.
    Exported(u64),
}

/// A cache of device memory. Bytes are returned where memory goes back to the driver.
pub trait Cache: Sync {
    /// Gives back what is free.
    fn make_room(&self, search: &Search) -> u64;

    /// Gives back some `bytes` of a device, or a little more, without a wait for work.
    fn give_complete(&self, device: i32, bytes: u64, patience: Duration) -> u64;

    /// Gives back what has been free for some time: a tick of the background thread.
    fn decay(&self) -> u64;

    /// Number of times at which memory of a device went back; `None` while some is on its way.
    fn returns(&self, device: i32) -> Option<u64>;

    /// Bytes that are not handed out.
    fn unused(&self, device: i32) -> Unused;

    /// Bytes that are held. Walks all blocks, under each pool's lock.
    fn held(&self, device: i32) -> Held;

    /// Bytes that are held from the driver; `None` while a pool is at work. Waits for no lock.
    fn held_now(&self, device: i32) -> Option<u64>;

    /// Acts on news of captures, graphs and exports.
    fn note(&self, news: News);
}

/// The place of a cache among [`all`].
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

/// All caches that were ever used, in the order of their places.
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
