//! The caches of this process: what concerns all of them is told to all of them, and asked of all of them, here.
//!
//! A cache is added when it is first used. None is ever removed.

use std::sync::OnceLock;
use std::time::Duration;

use gpushim_alloc::stream_pool::PoolId;

use crate::record::events::Held;

/// The cache, or the pool of one, that asks for memory: it gives none itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asking {
    Whole,
    Pool(PoolId),
    Segments,
    /// A request outside the caches.
    Nobody,
}

/// A search for memory.
#[derive(Clone, Copy, Debug)]
pub struct Search {
    /// The device that is short of it; `None` for all.
    pub device: Option<i32>,
    pub asking: Asking,
    /// Also waits for work that uses what is free.
    pub waits: bool,
    /// The time to wait for a thread that looks for memory in the same pool.
    pub patience: Duration,
}

/// Bytes that a cache holds of a device and has not handed out.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unused {
    /// All these bytes.
    pub all: u64,
    /// Those that `cudaMalloc` could have without the driver, or that go back as soon as captures and
    /// graphs let them.
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
    /// A graph is gone.
    GraphDestroyed(u64),
    /// Others reach the memory at this address from now on.
    Exported(u64),
}

/// A cache of device memory. Bytes are returned where memory goes back to the driver.
pub trait Cache: Sync {
    /// Gives back what is free.
    fn make_room(&self, search: &Search) -> u64;

    /// Waits until memory that is on its way to the driver is there.
    fn wait_for_releases(&self) {}

    /// Gives back about so many bytes of a device, without a wait for work.
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

    /// Takes note of news.
    fn note(&self, news: News);
}

/// The place of a cache among [`all`].
#[derive(Clone, Copy, Debug)]
pub enum Place {
    /// Whole allocations of the driver.
    Whole,
    /// Pools of streams, and of pages.
    Pools,
    /// Segments of PyTorch's.
    Segments,
}

static CACHES: [OnceLock<&'static dyn Cache>; 3] = [const { OnceLock::new() }; 3];

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

/// Tells all caches.
pub fn tell(news: News) {
    all().for_each(|cache| cache.note(news));
}
