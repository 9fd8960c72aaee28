//! The simulated device as the pool's, which looks at the pool in the middle of every call.

use crate::device_pool::{Device, DevicePool, Settings};
use crate::handles::{Address, Context};
use crate::sim::{DeviceSim, Error, Event};
use std::sync::{Arc, OnceLock, Weak};

/// The simulated device, which asks the pool for its figures in the middle of every call: with a
/// lock held over the call that would never return.
pub struct Probe {
    pub sim: DeviceSim,
    pub pool: OnceLock<Weak<DevicePool<Probe>>>,
}

impl Probe {
    pub fn pool(sim: DeviceSim, settings: Settings) -> Arc<DevicePool<Probe>> {
        let pool = Arc::new(DevicePool::new(
            Probe {
                sim,
                pool: OnceLock::new(),
            },
            settings,
        ));
        let _ = pool.device().pool.set(Arc::downgrade(&pool));
        pool
    }

    fn peek(&self) -> &DeviceSim {
        if let Some(pool) = self.pool.get().and_then(Weak::upgrade) {
            let stats = pool.stats(None);
            assert_eq!(stats.cached(), stats.reserved - stats.allocated);
        }
        &self.sim
    }
}

impl Device for Probe {
    type Error = Error;
    type Event = Event;
    const OUT_OF_MEMORY: Error = Error::OutOfMemory;

    fn is_out_of_memory(error: Error) -> bool {
        DeviceSim::is_out_of_memory(error)
    }
    fn is_end(error: Error) -> bool {
        DeviceSim::is_end(error)
    }
    fn ordinal(&self, context: Context) -> Result<i32, Error> {
        self.peek().ordinal(context)
    }
    fn allocate(&self, context: Context, bytes: u64) -> Result<Address, Error> {
        self.peek().allocate(context, bytes)
    }
    fn born(&self) -> u64 {
        self.peek().born()
    }
    fn release(
        &self,
        context: Context,
        born: u64,
        address: Address,
        bytes: u64,
    ) -> Result<(), Error> {
        self.peek().release(context, born, address, bytes)
    }
    fn record(&self, context: Context) -> Result<Option<Event>, Error> {
        self.peek().record(context)
    }
    fn order(&self, context: Context, event: Event) -> Result<(), Error> {
        self.peek().order(context, event)
    }
    fn is_complete(&self, event: Event) -> Result<bool, Error> {
        self.peek().is_complete(event)
    }
    fn wait(&self, event: Event) -> Result<(), Error> {
        self.peek().wait(event)
    }
    fn captures(&self, context: Context) -> bool {
        self.peek().captures(context)
    }
    fn refusing(&self) -> Vec<u64> {
        self.peek().refusing()
    }
    fn drain(&self, context: Context) -> Result<(), Error> {
        self.peek().drain(context)
    }
    fn retire(&self, event: Event) {
        self.peek().retire(event)
    }
    fn synchronize(&self, context: Context) -> Result<(), Error> {
        self.peek().synchronize(context)
    }
    fn memory_info(&self, context: Context) -> Result<(u64, u64), Error> {
        self.peek().memory_info(context)
    }
}
