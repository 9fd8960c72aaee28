//! A context ends while another thread is given its addresses.

use crate::device_pool::{Device, DevicePool, Settings};
use crate::handles::{Address, Context};
use crate::policy::{Reuse, TICKS_TO_DECAY};
use crate::sim::{DeviceSim, Error, Event};
use crate::types::FreeError;
use parking_lot::Mutex;
use std::sync::Arc;

const MIB: u64 = 1 << 20;
const OTHER: Context = Context(1);
pub const DOOMED: Context = Context(2);

/// A pool on a device with two contexts.
fn pool(reuse: Reuse) -> DevicePool<DeviceSim> {
    let sim = DeviceSim::new(1 << 30);
    sim.add_context(OTHER, 0);
    sim.add_context(DOOMED, 0);
    let settings = Settings {
        reuse,
        margin: Some(0),
        ..Settings::default()
    };
    DevicePool::new(sim, settings)
}

#[test]
fn addresses_of_a_context_that_ends_are_another_s_at_once() {
    let pool = pool(Reuse::Order);
    let live = pool.allocate(DOOMED, 3 * MIB).unwrap().address;
    let cached = pool.allocate(DOOMED, 5 * MIB).unwrap().address;
    pool.free(cached, |_| ()).unwrap();
    pool.context_leaves(DOOMED);
    for address in [live, cached] {
        assert_eq!(pool.free(address, |_| ()), Err(FreeError::Unknown));
        assert!(pool.find(address).is_none());
    }
    // The driver has ended the context: the lowest address is the first that it hands out again.
    pool.device().destroy_context(DOOMED);
    let again = pool.allocate(OTHER, 40 * MIB).unwrap().address;
    assert_eq!(again, live, "the same address, for the test's sake");
    let gone = pool.context_gone(DOOMED);
    assert_eq!(gone.live, [live]);
    assert_eq!(pool.find(again), Some((again, 40 * MIB)));
    assert_eq!(pool.stats(None).live, 1);
    pool.free(again, |_| ()).unwrap();
}

#[test]
fn a_context_that_stays_has_its_blocks_back() {
    let pool = pool(Reuse::Order);
    let first = pool.allocate(DOOMED, 3 * MIB).unwrap().address;
    let second = pool.allocate(DOOMED, 3 * MIB).unwrap().address;
    pool.free(second, |_| ()).unwrap();
    let before = pool.stats(None);
    pool.context_leaves(DOOMED);
    pool.context_stays(DOOMED);
    assert_eq!(pool.find(first), Some((first, 3 * MIB)));
    assert_eq!(pool.stats(None), before);
    pool.free(first, |_| ()).unwrap();
    assert!(pool.trim(None, 0) >= 6 * MIB);
    assert_eq!(pool.device().findings(), Vec::<String>::new());
}

#[test]
fn nothing_goes_back_while_a_context_ends() {
    let pool = pool(Reuse::Order);
    let blocks: Vec<_> = (3..6)
        .map(|n| pool.allocate(DOOMED, n * MIB).unwrap().address)
        .collect();
    for address in &blocks {
        pool.free(*address, |_| ()).unwrap();
    }
    pool.context_leaves(DOOMED);
    // The background thread's ticks come between.
    for _ in 0..2 * TICKS_TO_DECAY {
        pool.decay();
    }
    assert_eq!(pool.trim(None, 0), 0);
    pool.device().destroy_context(DOOMED);
    pool.context_gone(DOOMED);
    let blocks: Vec<_> = (3..9)
        .map(|n| pool.allocate(OTHER, n * MIB).unwrap().address)
        .collect();
    for (n, address) in blocks.iter().enumerate() {
        assert_eq!(pool.find(*address), Some((*address, (n as u64 + 3) * MIB)));
    }
    assert_eq!(pool.stats(None).live, 6);
    assert_eq!(pool.device().findings(), Vec::<String>::new());
}

#[test]
fn a_context_that_ends_holds_back_no_block_of_another() {
    for reuse in [Reuse::Order, Reuse::Wait, Reuse::Strict] {
        let pool = pool(reuse);
        pool.context_known(DOOMED);
        let sim = pool.device();
        sim.close_context(DOOMED);
        pool.context_leaves(DOOMED);
        let mut addresses = Vec::new();
        for _ in 0..20 {
            let grant = pool.allocate(OTHER, 3 * MIB).unwrap();
            let number = sim.granted(grant.address, grant.size);
            sim.launch(OTHER, &[(grant.address, grant.size, number)]);
            sim.returned(grant.address);
            pool.free(grant.address, |_| ()).unwrap();
            addresses.push(grant.address);
        }
        let first = addresses[0];
        assert_eq!(addresses, [first; 20], "{reuse:?}: the pool grows");
        let exported = pool.allocate(OTHER, 3 * MIB).unwrap().address;
        pool.exported(exported);
        assert_eq!(pool.free(exported, |_| ()), Ok(()), "{reuse:?}");
        assert_eq!(sim.findings(), Vec::<String>::new());
    }
}

/// What happens within one call.
type Meanwhile = Mutex<Option<Box<dyn FnOnce() + Send>>>;

/// A device on which something else happens while memory goes back: before it is back, and after.
pub struct Interrupted {
    pub sim: DeviceSim,
    pub before: Meanwhile,
    pub after: Meanwhile,
}

impl Interrupted {
    /// A pool on such a device, with one context.
    pub fn pool() -> Arc<DevicePool<Interrupted>> {
        let sim = DeviceSim::new(1 << 30);
        sim.add_context(DOOMED, 0);
        let device = Interrupted {
            sim,
            before: Mutex::new(None),
            after: Mutex::new(None),
        };
        let settings = Settings {
            margin: Some(0),
            ..Settings::default()
        };
        Arc::new(DevicePool::new(device, settings))
    }
}

fn happens(meanwhile: &Meanwhile) {
    let what = meanwhile.lock().take();
    what.into_iter().for_each(|what| what());
}

impl Device for Interrupted {
    type Error = Error;
    type Event = Event;
    const OUT_OF_MEMORY: Error = Error::OutOfMemory;

    fn is_out_of_memory(error: Error) -> bool {
        DeviceSim::is_out_of_memory(error)
    }
    fn ordinal(&self, context: Context) -> Result<i32, Error> {
        self.sim.ordinal(context)
    }
    fn allocate(&self, context: Context, bytes: u64) -> Result<Address, Error> {
        self.sim.allocate(context, bytes)
    }
    fn born(&self) -> u64 {
        self.sim.born()
    }
    fn release(
        &self,
        context: Context,
        born: u64,
        address: Address,
        bytes: u64,
    ) -> Result<(), Error> {
        happens(&self.before);
        let result = self.sim.release(context, born, address, bytes);
        happens(&self.after);
        result
    }
    fn record(&self, context: Context) -> Result<Option<Event>, Error> {
        self.sim.record(context)
    }
    fn order(&self, context: Context, event: Event) -> Result<(), Error> {
        self.sim.order(context, event)
    }
    fn is_complete(&self, event: Event) -> Result<bool, Error> {
        self.sim.is_complete(event)
    }
    fn wait(&self, event: Event) -> Result<(), Error> {
        self.sim.wait(event)
    }
    fn retire(&self, event: Event) {
        self.sim.retire(event);
    }
    fn synchronize(&self, context: Context) -> Result<(), Error> {
        self.sim.synchronize(context)
    }
    fn memory_info(&self, context: Context) -> Result<(u64, u64), Error> {
        self.sim.memory_info(context)
    }
}

#[test]
fn memory_on_its_way_back_is_not_taken_from_a_later_context_with_the_same_handle() {
    let pool = Interrupted::pool();
    let before = pool.allocate(DOOMED, 3 * MIB).unwrap().address;
    pool.free(before, |_| ()).unwrap();
    // The context ends, and begins anew under the same handle.
    let ours = pool.clone();
    let renew = move || {
        let sim = &ours.device().sim;
        ours.context_leaves(DOOMED);
        sim.destroy_context(DOOMED);
        ours.context_gone(DOOMED);
        sim.add_context(DOOMED, 0);
        let again = ours.allocate(DOOMED, 3 * MIB).unwrap();
        sim.granted(again.address, again.size);
        assert_eq!(again.address, before, "for the test's sake");
    };
    *pool.device().before.lock() = Some(Box::new(renew));
    pool.trim(None, 0);
    assert_eq!(pool.find(before), Some((before, 3 * MIB)));
    assert_eq!(pool.device().sim.findings(), Vec::<String>::new());
}
