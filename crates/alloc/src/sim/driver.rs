//! Driver calls, as the simulated device answers them.

use super::pages::HOST;
use super::{Call, Clock, Error, Event, Inner, Sim};
use crate::driver::{Driver, Home, PoolId};
use crate::handles::Context;
use crate::handles::Stream;
use crate::pool::Pool;
use std::ops::Deref;
use std::sync::Weak;
use std::time::Duration;

/// Time that a pool without memory waits for another pool.
const PATIENCE: Duration = Duration::from_millis(10);

/// Pools that share a device.
pub struct World {
    pub sim: Sim,
    pub pools: Vec<Pool<Probe>>,
}

impl Deref for World {
    type Target = Sim;

    fn deref(&self) -> &Sim {
        &self.sim
    }
}

/// Access of one pool to the device. Every call looks at all pools: none may have its lock held.
pub struct Probe {
    pub number: usize,
    pub world: Weak<World>,
}

impl Probe {
    fn with<R>(&self, f: impl FnOnce(&mut Inner) -> R) -> R {
        let world = self.world.upgrade().expect("the world outlives its pools");
        let mut inner = world.sim.inner.lock();
        let locks = inner.lies(Call::Locked);
        let _held = locks.then(|| world.pools[self.number].hold());
        for pool in &world.pools {
            match pool.peek() {
                Some(stats) => assert!(stats.allocated <= stats.reserved),
                None => inner.findings.push("a call with a lock held".into()),
            }
        }
        f(&mut inner)
    }
}

fn mask(devices: &[i32]) -> u8 {
    devices.iter().fold(0, |mask, device| mask | 1 << device)
}

impl Driver for Probe {
    type Error = Error;
    type Event = Event;
    type Admission = ();
    const OUT_OF_MEMORY: Error = Error::OutOfMemory;

    fn is_out_of_memory(error: Error) -> bool {
        error == Error::OutOfMemory
    }

    fn reserve(&self, _: i32, bytes: u64) -> Result<u64, Error> {
        self.with(|sim| {
            sim.enter(self.number, Call::Reserve)?;
            Ok(sim.memory.reserve(bytes))
        })
    }

    fn unreserve(&self, address: u64, bytes: u64) {
        self.with(|sim| {
            let finding = sim.memory.unreserve(address, bytes);
            sim.find(finding);
        });
    }

    fn create(&self, _: i32, bytes: u64) -> Result<u64, Error> {
        self.with(|sim| {
            sim.enter(self.number, Call::Create)?;
            if !bytes.is_multiple_of(2 << 20) {
                sim.findings.push(format!("a piece of {bytes} bytes"));
            }
            if sim.on_device().saturating_add(bytes) > sim.capacity {
                return Err(Error::OutOfMemory);
            }
            Ok(sim.memory.create(self.number, bytes))
        })
    }

    fn destroy(&self, _: i32, handle: u64, bytes: u64) {
        self.with(|sim| {
            if sim.memory.is_of(handle, HOST) {
                let taken = "host memory is taken for the device's";
                sim.findings.push(taken.into());
            }
            let finding = sim.memory.destroy(handle, bytes);
            sim.find(finding);
        });
    }

    fn create_on_host(&self, _: i32, bytes: u64) -> Result<u64, Error> {
        self.with(|sim| {
            sim.enter(HOST, Call::Create)?;
            Ok(sim.memory.create(HOST, bytes))
        })
    }

    fn destroy_on_host(&self, _: i32, handle: u64, bytes: u64) {
        self.with(|sim| {
            if !sim.memory.is_of(handle, HOST) {
                let taken = "the device's memory is taken for the host's";
                sim.findings.push(taken.into());
            }
            let finding = sim.memory.destroy(handle, bytes);
            sim.find(finding);
        });
    }

    fn room(&self, _: i32) -> u64 {
        self.with(|sim| sim.capacity.saturating_sub(sim.on_device()))
    }

    fn map(&self, address: u64, bytes: u64, handle: u64) -> Result<(), Error> {
        self.with(|sim| {
            if sim.enter(self.number, Call::Map)? {
                return Ok(());
            }
            if sim
                .memory
                .pieces
                .get(&handle)
                .is_some_and(|piece| piece.used)
            {
                *sim.moved.entry(self.number).or_default() += 1;
            }
            if sim.lies(Call::UnmapMoved) {
                sim.memory.stay(handle);
            }
            let finding = sim.memory.map(address, bytes, handle);
            sim.find(finding);
            Ok(())
        })
    }

    fn allow(&self, address: u64, bytes: u64, devices: &[i32]) -> Result<(), Error> {
        self.with(|sim| {
            if !sim.enter(self.number, Call::Allow)? {
                let (again, peers) = (sim.lies(Call::AllowAgain), sim.lies(Call::AllowPeers));
                let allowed = mask(if peers { &devices[..1] } else { devices });
                sim.set_access(address, bytes, |access| {
                    if !again || *access == 0 {
                        *access |= allowed;
                    }
                });
            }
            Ok(())
        })
    }

    fn forbid(&self, address: u64, bytes: u64, devices: &[i32]) -> Result<(), Error> {
        self.with(|sim| {
            if !sim.enter(self.number, Call::Forbid)? {
                sim.set_access(address, bytes, |access| *access &= !mask(devices));
            }
            Ok(())
        })
    }

    fn unmap(&self, address: u64, bytes: u64) -> Result<(), Error> {
        self.with(|sim| {
            let twin = sim.lies(Call::UnmapTwin) && sim.memory.is_twin(address);
            if sim.enter(self.number, Call::Unmap)? || twin {
                return Ok(());
            }
            sim.vanish(address, bytes);
            let finding = sim.memory.unmap(address, bytes);
            sim.find(finding);
            Ok(())
        })
    }

    fn memory_info(&self, _: i32) -> Option<(u64, u64)> {
        self.with(|sim| {
            let free = sim.capacity.saturating_sub(sim.memory.total());
            // On smaller devices the margin would leave nothing cached.
            (sim.capacity > 1 << 32).then_some((free, sim.capacity))
        })
    }

    fn allocate(&self, _: Home, bytes: u64) -> Result<u64, Error> {
        self.with(|sim| {
            sim.enter(self.number, Call::Allocate)?;
            if sim.memory.total().saturating_add(bytes) > sim.capacity {
                return Err(Error::OutOfMemory);
            }
            let access = sim.peers;
            Ok(sim.memory.allocate(self.number, bytes, access))
        })
    }

    fn release(&self, _: Home, address: u64, bytes: u64) -> Result<(), Error> {
        self.with(|sim| {
            if sim.enter(self.number, Call::Release)? {
                return Ok(());
            }
            sim.vanish(address, bytes);
            let handle = sim.memory.mappings.get_mut(&address).map_or(0, |mapping| {
                // The driver frees exported memory, too.
                mapping.pinned = false;
                mapping.handle
            });
            let finding = sim.memory.unmap(address, bytes);
            sim.find(finding);
            let finding = sim.memory.destroy(handle, bytes);
            sim.find(finding);
            Ok(())
        })
    }

    fn record(&self, stream: Stream) -> Result<Event, Error> {
        self.with(|sim| {
            sim.capturable(Call::Record, Some(stream));
            sim.record(self.number, stream)
        })
    }

    fn record_beside(&self, stream: Stream) -> Result<Event, Error> {
        self.with(|sim| {
            if sim.capturing.contains(&stream) || stream.handle <= Stream::PER_THREAD {
                return Err(Error::Failed);
            }
            sim.record(self.number, stream)
        })
    }

    fn wait_beside(&self, event: Event) -> Result<(), Error> {
        self.with(|sim| {
            let clock = sim.event(event)?;
            if !sim.enter(self.number, Call::Wait)? {
                sim.time.finish(&clock);
            }
            sim.prune();
            Ok(())
        })
    }

    fn drain(&self, stream: Stream) -> Result<(), Error> {
        self.with(|sim| {
            let every = match stream.context {
                Context(0) => stream,
                context => Stream::all_of(context),
            };
            let Some(clock) = sim.time.now(every) else {
                return Err(Error::Failed);
            };
            if !sim.enter(self.number, Call::Drain)? {
                sim.time.finish(&clock);
            }
            sim.prune();
            Ok(())
        })
    }

    fn order(&self, stream: Stream, event: Event) -> Result<(), Error> {
        self.with(|sim| {
            sim.capturable(Call::Order, Some(stream));
            let clock = sim.event(event)?;
            if !sim.enter(self.number, Call::Order)? {
                sim.time.order(stream, &clock);
            }
            Ok(())
        })
    }

    fn is_complete(&self, event: Event) -> Result<bool, Error> {
        self.with(|sim| {
            sim.capturable(Call::Query, None);
            let clock = sim.event(event)?;
            let lies = sim.enter(self.number, Call::Query)?;
            let complete = lies || sim.time.has_finished(&clock);
            sim.prune();
            Ok(complete)
        })
    }

    fn wait(&self, event: Event) -> Result<(), Error> {
        self.with(|sim| {
            sim.capturable(Call::Wait, None);
            let clock = sim.event(event)?;
            if !sim.enter(self.number, Call::Wait)? {
                sim.time.finish(&clock);
                sim.prune();
            }
            Ok(())
        })
    }

    fn retire(&self, event: Event) {
        self.with(|sim| {
            if !sim.time.retire(event.0) {
                sim.findings.push("an event is retired twice".into());
            }
        });
    }

    fn admit(&self, _: i32, bytes: u64) -> Option<()> {
        self.with(|sim| (sim.memory.total().saturating_add(bytes) <= sim.limit).then_some(()))
    }

    fn make_room(&self, asking: PoolId, waits: bool) -> bool {
        let world = self.world.upgrade().expect("the world outlives its pools");
        let mut given = 0;
        for (number, pool) in world.pools.iter().enumerate() {
            let probe = Probe {
                number,
                world: self.world.clone(),
            };
            if pool.id() != asking {
                given += pool.make_room(&probe, waits, PATIENCE);
            }
        }
        given > 0
    }
}

impl Inner {
    fn record(&mut self, pool: usize, stream: Stream) -> Result<Event, Error> {
        let lies = self.enter(pool, Call::Record)?;
        let Some(clock) = self.time.now(stream) else {
            self.findings
                .push(format!("{stream:?} is gone but recorded"));
            return Err(Error::Failed);
        };
        let clock = if lies { Clock::default() } else { clock };
        Ok(Event(self.time.record(stream.context, clock)))
    }
}
