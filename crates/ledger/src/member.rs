//! A process's part of a ledger, and its requests.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::file::Shared;
use crate::layout::{self, DEVICES, Part, SLOTS, Slot, Taken};
use crate::process::Process;
use crate::scope::Scope;
use crate::view::{Entry, View};

/// Longest time that a request waits for requests of others that are not decided yet. Each takes
/// less than a microsecond, unless its process is stopped.
const PATIENCE: Duration = Duration::from_secs(1);
/// Number of tries between two searches for ended processes.
const TRIES: u32 = 256;

/// Conditions under which a process joins a ledger.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// Most bytes of a device that all processes may hold together.
    pub limit: u64,
    /// Bytes of each device that no other process may use, from this process's first request on.
    pub guarantee: u64,
    /// Rank of the process in its job.
    pub rank: Option<u32>,
    /// Name of the process for people; the first 64 bytes are kept.
    pub name: String,
}

/// A process that takes part in a ledger.
#[derive(Debug)]
pub struct Member {
    shared: Shared,
    number: usize,
    terms: Terms,
    /// Places of devices in the ledger, and UUIDs, in the order of their first use.
    devices: [OnceLock<()>; DEVICES],
    /// Held while another process's slot is freed: a lock of a file does not exclude threads.
    freeing: Mutex<()>,
}

impl Member {
    /// Joins the ledger of a scope. A process may have one member at a time.
    ///
    /// # Errors
    /// There is no such ledger and none can be made, or it has no free slot; completes "failed to
    /// …".
    pub fn join(scope: &Scope, terms: Terms) -> Result<Member, Error> {
        let shared = scope.open()?;
        let what = format!("join the ledger {}", shared.path.display());
        let system = |error| Error::of_system(&what, &error);
        let own = Process::own().map_err(system)?;
        for (number, slot) in shared.content().slots.iter().enumerate() {
            if !shared.lock_slot(number).map_err(system)? {
                continue;
            }
            let known = owner_of(slot);
            // A process whose program closed the descriptor holds no lock. After exec(2) an old slot
            // is this process's own.
            if known.is_some_and(|known| known != own && known.has_ended() == Some(false)) {
                shared.unlock_slot(number);
                continue;
            }
            enter(&shared, number, own, &terms);
            return Ok(Member {
                shared,
                number,
                terms,
                devices: [const { OnceLock::new() }; DEVICES],
                freeing: Mutex::new(()),
            });
        }
        Err(Error::new(format!("{what}: {SLOTS} processes use it")))
    }

    /// Returns the path of the ledger.
    pub fn path(&self) -> &std::path::Path {
        &self.shared.path
    }

    /// Returns the ledger's random identity.
    pub fn id(&self) -> [u64; 2] {
        layout::load(&self.shared.content().head.id)
    }

    /// Returns the place of a device in the ledger, by its UUID. `None`: the ledger has no room for
    /// another device.
    pub fn device(&self, uuid: [u8; 16]) -> Option<usize> {
        let [low, high] = layout::words_of_device(uuid);
        let entries = &self.shared.content().head.devices;
        entries.iter().position(|entry| {
            let [first, second] = entry;
            // The second word is 0 only until the process that came first has written it.
            let is_ours = |word: &AtomicU64, value: u64| {
                let swap = word.compare_exchange(0, value, Ordering::AcqRel, Ordering::Acquire);
                swap.is_ok() || swap == Err(value)
            };
            is_ours(first, low) && is_ours(second, high)
        })
    }

    fn slot(&self) -> Option<&Slot> {
        self.shared.content().slots.get(self.number)
    }

    /// Returns the count of the bytes of a device that this process holds. Other code may add what
    /// the driver took beyond a request, and subtract what it freed.
    #[inline]
    pub fn held(&self, device: usize) -> Option<&AtomicU64> {
        Some(&self.slot()?.parts.get(device)?.held)
    }

    /// Takes bytes of a device, if the limit allows it. They are added to [`Member::held`].
    pub fn take(&self, device: usize, bytes: u64) -> bool {
        let Some(own) = self.slot().and_then(|slot| slot.parts.get(device)) else {
            return false;
        };
        self.guarantee(device, own);
        let begun = OnceLock::new();
        let mut may_have_ended = true;
        for tried in 0_u32.. {
            match self.decide(device, own, bytes) {
                Decision::Taken => return true,
                Decision::Refused if may_have_ended && self.free_ended() > 0 => {
                    may_have_ended = false;
                }
                Decision::Refused => return false,
                Decision::Open => {
                    if begun.get_or_init(Instant::now).elapsed() > PATIENCE {
                        return false;
                    }
                    if tried % TRIES == TRIES - 1 {
                        self.free_ended();
                        thread::sleep(Duration::from_millis(1));
                    }
                    thread::yield_now();
                }
            }
        }
        false
    }

    /// Adds a request to the ledger, decides it by the sum, and removes it again if it is not
    /// granted.
    fn decide(&self, device: usize, own: &Part, bytes: u64) -> Decision {
        let asking = own.asking.fetch_add(bytes, Ordering::SeqCst);
        let others = self.others(device);
        let held = own.held.load(Ordering::SeqCst);
        let all = held.saturating_add(asking).saturating_add(bytes);
        let is_guaranteed = all <= own.guaranteed.load(Ordering::SeqCst);
        let limit = self.terms.limit;
        let decision = if is_guaranteed || others.all.saturating_add(all) <= limit {
            own.held.fetch_add(bytes, Ordering::SeqCst);
            Decision::Taken
        } else if others.held.saturating_add(held).saturating_add(bytes) > limit {
            Decision::Refused
        } else {
            Decision::Open
        };
        own.asking.fetch_sub(bytes, Ordering::SeqCst);
        decision
    }

    /// Sums what other processes have of a device.
    fn others(&self, device: usize) -> Taken {
        let slots = self.shared.used().iter().enumerate();
        slots
            .filter(|(number, _)| *number != self.number)
            .filter_map(|(_, slot)| Some(slot.parts.get(device)?.taken()))
            .fold(Taken::default(), std::ops::Add::add)
    }

    /// Returns the bytes of a device that all processes hold, with the guaranteed bytes of others.
    pub fn held_by_all(&self, device: usize) -> u64 {
        let own = self
            .held(device)
            .map_or(0, |own| own.load(Ordering::SeqCst));
        self.others(device).held.saturating_add(own)
    }

    /// Returns the bytes of a device that this process may still take.
    pub fn free(&self, device: usize) -> u64 {
        let Some(own) = self.slot().and_then(|slot| slot.parts.get(device)) else {
            return 0;
        };
        let held = own.held.load(Ordering::SeqCst);
        let guaranteed = own.guaranteed.load(Ordering::SeqCst).saturating_sub(held);
        let shared = self.terms.limit.saturating_sub(self.held_by_all(device));
        guaranteed.max(shared)
    }

    /// Claims the guaranteed bytes of a device, once, if they are free then.
    fn guarantee(&self, device: usize, own: &Part) {
        let Some(once) = self
            .devices
            .get(device)
            .filter(|_| self.terms.guarantee > 0)
        else {
            return;
        };
        once.get_or_init(|| {
            own.guaranteed.store(self.terms.guarantee, Ordering::SeqCst);
            let own_bytes = own.taken().all;
            if self.others(device).all.saturating_add(own_bytes) > self.terms.limit {
                own.guaranteed.store(0, Ordering::SeqCst);
            }
        });
    }

    /// Frees the slots of processes that have ended. Returns their number.
    pub fn free_ended(&self) -> usize {
        let _freeing = self.freeing.lock().unwrap_or_else(PoisonError::into_inner);
        let slots = self.shared.used().iter().enumerate();
        slots
            .filter(|(number, slot)| *number != self.number && self.free_if_ended(*number, slot))
            .count()
    }

    fn free_if_ended(&self, number: usize, slot: &Slot) -> bool {
        let may_have_ended =
            || owner_of(slot).is_some_and(|process| process.has_ended().unwrap_or(true));
        // The second look is under the lock: another process may own the slot by now.
        if !may_have_ended() || !self.shared.lock_slot(number).unwrap_or(false) {
            return false;
        }
        let has_ended = may_have_ended();
        if has_ended {
            slot.clear();
        }
        self.shared.unlock_slot(number);
        has_ended
    }

    /// Returns the other processes with their bytes of a device, the largest first.
    pub fn peers(&self, device: usize) -> Vec<Entry> {
        let mut peers = View::entries(&self.shared, Some(device));
        peers.retain(|entry| entry.slot != self.number);
        peers
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        if let Some(slot) = self.slot() {
            slot.clear();
        }
        self.shared.unlock_slot(self.number);
    }
}

/// State of a request after one look at the ledger.
enum Decision {
    Taken,
    Refused,
    /// Only other requests that are not decided are in its way.
    Open,
}

/// Returns the process that owns a slot.
pub fn owner_of(slot: &Slot) -> Option<Process> {
    let owner = slot.owner.load(Ordering::SeqCst);
    Process::of_words(owner, slot.namespace.load(Ordering::SeqCst))
}

/// Makes a slot that this process has locked its own.
fn enter(shared: &Shared, number: usize, own: Process, terms: &Terms) {
    let Some(slot) = shared.content().slots.get(number) else {
        return;
    };
    slot.clear();
    let (owner, namespace) = own.words();
    slot.namespace.store(namespace, Ordering::SeqCst);
    let rank = terms.rank.map_or(0, |rank| u64::from(rank) + 1);
    slot.rank.store(rank, Ordering::Relaxed);
    slot.limit.store(terms.limit, Ordering::Relaxed);
    layout::store_text(&slot.name, &terms.name);
    slot.owner.store(owner, Ordering::SeqCst);
    let used = number as u64 + 1;
    shared.content().head.used.fetch_max(used, Ordering::SeqCst);
}
