//! The limit on the memory that the process may hold of each device (`GPUSHIM_LIMIT`).
//!
//! The most that the driver can take for a request is claimed before the driver is called. So no
//! number of threads exceeds the limit. The driver takes whole granules. Small blocks of one
//! context share granules: the address that the driver returns shows if the granule was counted
//! before. Without a limit nothing is counted.
//!
//! If processes share the limit, their [ledger](crate::memory::ledger) has the counts. Then NVML's
//! figure of the process counts as well.

use std::cell::Cell;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard};
use std::{iter, mem};

use gpushim_alloc::Context;

use crate::base::lock::lock;
use crate::base::{boundary, settings};
use crate::cuda::devices;
use crate::memory::ledger::{self, Part};

/// Granule of the driver's memory in bytes (`alloc.info` of tests/conformance/recorded.txt).
const GRANULE: u64 = 2 << 20;
/// Bytes of the largest block that shares a granule with others.
const SMALL: u64 = 1 << 20;

/// Number of device ordinals, with one place for memory of no known device.
const DEVICES: usize = 256;

/// Bytes of each device that the process holds or is asking for.
static HELD: [AtomicU64; DEVICES] = [const { AtomicU64::new(0) }; DEVICES];

/// Lock held while the driver is asked for a block that may need no new memory: only one such claim
/// is open at a time.
static TURN: Mutex<()> = Mutex::new(());

/// Memory that the driver takes and frees as one, by its address or handle.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Key {
    /// A granule of small blocks; ends with a context.
    Granule(Context, u64),
    /// A large block, or an array; ends with a context.
    Block(Context, u64),
    /// Physical memory, by its handle.
    Physical(u64),
    /// All memory of a pool of the driver.
    Pool(u64),
    /// Memory of a device that no call here asked for: of contexts, code and graphs.
    Uncounted(i32),
}

impl Key {
    fn ends_with(self, gone: Context) -> bool {
        matches!(self, Key::Granule(of, _) | Key::Block(of, _) if of == gone)
    }
}

/// The place of memory: the first and the last key by which it is counted.
#[derive(Clone, Copy)]
pub struct Place(Key, Key);

impl Place {
    /// Returns the place of a block that the driver made in a context.
    pub fn of_block(context: Context, address: u64, bytes: u64) -> Place {
        if bytes > SMALL {
            return Place::of_array(context, address);
        }
        let granule = |address| Key::Granule(context, address - address % GRANULE);
        Place(granule(address), granule(address + bytes.max(1) - 1))
    }

    /// Returns the place of an array that was made in a context. Its address is unknown, so it has
    /// granules of its own.
    pub fn of_array(context: Context, handle: u64) -> Place {
        Place(Key::Block(context, handle), Key::Block(context, handle))
    }

    /// Returns the place of physical memory.
    pub fn of_physical(handle: u64) -> Place {
        Place(Key::Physical(handle), Key::Physical(handle))
    }

    /// Returns the place of all blocks of a pool of the driver.
    pub fn of_pool(handle: u64) -> Place {
        Place(Key::Pool(handle), Key::Pool(handle))
    }

    /// Returns the handle of the driver's pool, if this is the place of one.
    pub fn pool(self) -> Option<u64> {
        match self.0 {
            Key::Pool(handle) => Some(handle),
            _ => None,
        }
    }

    fn keys(self) -> impl Iterator<Item = Key> {
        iter::once(self.0).chain(Some(self.1).filter(|last| *last != self.0))
    }
}

/// Bytes that are held by a key.
struct Holding {
    device: i32,
    bytes: u64,
    /// Blocks, handles, mappings and pools that keep it.
    users: u32,
    /// Users of earlier memory with this key, for which [`give`] has not been called yet.
    late: u32,
}

static HOLDINGS: LazyLock<Mutex<HashMap<Key, Holding>>> = LazyLock::new(Mutex::default);

/// Number of times that the bytes of each device in [`HOLDINGS`] changed. It is written under that
/// lock.
static CHANGES: [AtomicU64; DEVICES] = [const { AtomicU64::new(0) }; DEVICES];

/// Adds bytes to what keys hold of a device, and subtracts others.
fn change_held(device: i32, more: u64, less: u64) {
    if more != less {
        at(&CHANGES, device).fetch_add(1, Ordering::Relaxed);
        of(device).fetch_add(more.wrapping_sub(less), Ordering::AcqRel);
    }
}

/// Limit in bytes per device, if there is one.
pub fn limit() -> Option<u64> {
    settings::config().limit.map(|limit| limit.bytes)
}

fn of(device: i32) -> &'static AtomicU64 {
    if let Some(part) = Part::of(device) {
        return part.held();
    }
    at(&HELD, device)
}

fn at(all: &'static [AtomicU64; DEVICES], device: i32) -> &'static AtomicU64 {
    let known = usize::try_from(device).ok();
    known
        .and_then(|device| all.get(device))
        .unwrap_or(&all[DEVICES - 1])
}

/// Rounds bytes up to whole granules.
fn granules(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(GRANULE).unwrap_or(bytes)
}

/// Bytes claimed for a request that the driver has not answered yet. They are given back when
/// dropped.
#[must_use]
pub struct Claim {
    device: i32,
    bytes: u64,
    turn: Option<MutexGuard<'static, ()>>,
}

impl Claim {
    /// A claim of 0 bytes: for memory that does not count.
    pub fn none() -> Claim {
        Claim {
            device: 0,
            bytes: 0,
            turn: None,
        }
    }

    /// Lets other threads make claims that they may not need, too: the driver's answer takes
    /// longer.
    pub fn let_others(&mut self) {
        self.turn = None;
    }

    /// Counts the memory that the driver gave for this many bytes. It is held until [`give`].
    pub fn keep(mut self, place: Place, bytes: u64) {
        if self.bytes > 0 {
            place
                .keys()
                .for_each(|key| self.enter(key, granules(bytes)));
        }
    }

    fn enter(&mut self, key: Key, bytes: u64) {
        let device = self.device;
        let mut holdings = lock(&HOLDINGS);
        let known = holdings.entry(key).or_insert(Holding {
            device,
            bytes: 0,
            // A pool keeps its memory, too.
            users: matches!(key, Key::Pool(_)).into(),
            late: 0,
        });
        known.users += 1;
        if let (Key::Granule(..), 2..) = (key, known.users) {
            return;
        }
        if matches!(key, Key::Block(..) | Key::Physical(_)) {
            // The driver used the address or handle again, so the earlier memory is gone.
            known.late += mem::replace(&mut known.users, 1) - 1;
        }
        let before = mem::replace(&mut known.bytes, bytes);
        let more = bytes.saturating_sub(self.bytes);
        of(device).fetch_add(more, Ordering::AcqRel);
        self.bytes -= bytes - more;
        let earlier = mem::replace(&mut known.device, device);
        of(earlier).fetch_sub(before, Ordering::AcqRel);
        if (before, earlier) != (bytes, device) {
            at(&CHANGES, device).fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        of(self.device).fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

thread_local! {
    /// Device and bytes that this thread has claimed in advance.
    static ADVANCE: Cell<(i32, u64)> = const { Cell::new((0, 0)) };
}

/// Bytes claimed for all pieces of a request of this thread. Two requests that each get a part would
/// both be refused. What no piece has taken is given back when dropped.
#[must_use]
pub struct Advance {
    /// True if the claim is this one's, and not that of an outer request.
    claims: bool,
}

impl Advance {
    /// Claims bytes of a device in advance. Small blocks only have to fit: they may need no claim.
    /// `None`: the limit does not allow it.
    pub fn of(device: i32, bytes: u64) -> Option<Advance> {
        let claims = limit().is_some() && bytes > SMALL && ADVANCE.get().1 == 0;
        if !claims {
            return fits(device, bytes).then_some(Advance { claims });
        }
        let mut claim = reserve(device, bytes)?;
        ADVANCE.set((device, mem::take(&mut claim.bytes)));
        Some(Advance { claims })
    }

    /// Takes the claim of a piece; `None` if it was not claimed in advance.
    fn take(device: i32, bytes: u64) -> Option<Claim> {
        let (of, claimed) = ADVANCE.get();
        let rest = claimed.checked_sub(bytes).filter(|_| of == device)?;
        ADVANCE.set((of, rest));
        Some(Claim {
            device,
            bytes,
            turn: None,
        })
    }
}

impl Drop for Advance {
    fn drop(&mut self) {
        if self.claims {
            let (device, rest) = ADVANCE.take();
            of(device).fetch_sub(rest, Ordering::AcqRel);
        }
    }
}

/// Claims the most that the driver may take for bytes of a device. `None`: the limit does not allow
/// it.
pub fn reserve(device: i32, bytes: u64) -> Option<Claim> {
    reserve_in_turn(device, bytes, bytes <= SMALL)
}

/// Claims as [`reserve`] does. `may_share`: the driver may need less, or nothing.
pub fn reserve_in_turn(device: i32, bytes: u64, may_share: bool) -> Option<Claim> {
    let Some(limit) = limit() else {
        return Some(Claim::none());
    };
    let turn = may_share.then(|| lock(&TURN));
    let bytes = granules(bytes);
    if let Some(claim) = Advance::take(device, bytes) {
        return Some(claim);
    }
    let more = |held: u64| held.checked_add(bytes).filter(|held| *held <= limit);
    let is_taken = match Part::of(device) {
        Some(part) => part.take(bytes),
        None => of(device)
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, more)
            .is_ok(),
    };
    // Not `then_some`: a claim that is dropped gives its bytes back.
    is_taken.then(|| Claim {
        device,
        bytes,
        turn,
    })
}

/// Adds a user of memory. False: the memory is not counted.
pub fn share(place: Place) -> bool {
    let mut holdings = lock(&HOLDINGS);
    let known = holdings.get_mut(&place.0);
    known.map(|known| known.users += 1).is_some()
}

/// Removes a user of memory, after the driver's answer. The memory is freed with its last user.
/// Memory that is not counted, or that ended with its context, stays uncounted.
pub fn give(place: Place) {
    if limit().is_none() {
        return;
    }
    let mut holdings = lock(&HOLDINGS);
    for key in place.keys() {
        let Entry::Occupied(mut known) = holdings.entry(key) else {
            continue;
        };
        let holding = known.get_mut();
        match holding.late {
            0 => holding.users -= 1,
            _ => holding.late -= 1,
        }
        if holding.users == 0 {
            let gone = known.remove();
            change_held(gone.device, 0, gone.bytes);
        }
    }
}

/// Removes the memory of a context that has ended.
pub fn context_gone(context: Context) {
    lock(&HOLDINGS).retain(|key, held| {
        let stays = !key.ends_with(context);
        if !stays {
            change_held(held.device, 0, held.bytes);
        }
        stays
    });
}

/// Sets the size of counted memory to this many bytes.
pub fn recount(place: Place, bytes: u64) {
    change(place, |_| bytes);
}

/// Limits the size of counted memory to this many bytes.
pub fn shrink(place: Place, most: u64) {
    change(place, |bytes| bytes.min(most));
}

fn change(place: Place, bytes: impl FnOnce(u64) -> u64) {
    if let Some(known) = lock(&HOLDINGS).get_mut(&place.0) {
        let before = known.bytes;
        known.bytes = bytes(before);
        change_held(known.device, known.bytes, before);
    }
}

/// Returns the bytes of a device that may still be taken. `None`: there is no limit. Other threads
/// and processes may take them first: [`reserve`] decides.
pub fn free(device: i32) -> Option<u64> {
    let limit = limit()?;
    Some(match Part::of(device) {
        Some(part) => part.free(),
        None => limit.saturating_sub(held(device)),
    })
}

/// Returns the limit of the device with a UUID and its free bytes. `None`: there is no limit. It
/// changes nothing in a process that has not used CUDA yet.
pub fn of_uuid(uuid: [u8; 16]) -> Option<[u64; 2]> {
    let limit = limit()?;
    let own = || match boundary::serves() {
        true => devices::with_uuid(uuid).and_then(free).unwrap_or(limit),
        false => limit,
    };
    Some([limit, ledger::free(uuid).unwrap_or_else(own)])
}

/// True if this number of further bytes of a device may be held, as [`free`] counts.
pub fn fits(device: i32, bytes: u64) -> bool {
    free(device).is_none_or(|free| granules(bytes) <= free)
}

/// True if this number of further bytes of a device may be held once other processes have given
/// theirs.
pub fn fits_without_peers(device: i32, bytes: u64) -> bool {
    let with = held(device).saturating_add(granules(bytes));
    limit().is_none_or(|limit| with <= limit)
}

/// True if the limit of a device is shared with other processes.
pub fn is_shared(device: i32) -> bool {
    Part::of(device).is_some()
}

/// Bytes of a device that are counted without NVML, while no request is open.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Counted {
    device: i32,
    bytes: u64,
    changes: u64,
}

impl Counted {
    /// Returns the count of a device. `None`: the limit is not shared, or a request is open.
    pub fn of(device: i32) -> Option<Counted> {
        Part::of(device)?;
        Counted::among(&lock(&HOLDINGS), device)
    }

    fn among(holdings: &HashMap<Key, Holding>, device: i32) -> Option<Counted> {
        let its = holdings
            .iter()
            .filter(|(_, holding)| holding.device == device);
        let (mut bytes, mut rest) = (0, 0);
        for (key, holding) in its {
            match key {
                Key::Uncounted(_) => rest = holding.bytes,
                _ => bytes += holding.bytes,
            }
        }
        // A claim is held by no key.
        (held(device) == bytes + rest).then(|| Counted {
            device,
            bytes,
            changes: at(&CHANGES, device).load(Ordering::Relaxed),
        })
    }

    /// Counts the rest of the bytes that the process uses of the device by NVML's figure. False,
    /// and nothing changes, if memory was requested or freed since this count.
    pub fn uses(self, uses: u64) -> bool {
        let mut holdings = lock(&HOLDINGS);
        let is_same = Counted::among(&holdings, self.device) == Some(self);
        if is_same {
            count_rest(&mut holdings, self.device, uses.saturating_sub(self.bytes));
        }
        is_same
    }
}

/// Number of bytes of a device's contexts and code that are counted, by NVML's figure.
pub fn rest(device: i32) -> u64 {
    let holdings = lock(&HOLDINGS);
    let rest = holdings.get(&Key::Uncounted(device));
    rest.map_or(0, |rest| rest.bytes)
}

/// Removes the count of contexts and code of a device that has no context any more.
pub fn no_context(device: i32) {
    if is_shared(device) {
        count_rest(&mut lock(&HOLDINGS), device, 0);
    }
}

fn count_rest(holdings: &mut HashMap<Key, Holding>, device: i32, bytes: u64) {
    let rest = holdings.entry(Key::Uncounted(device)).or_insert(Holding {
        device,
        bytes: 0,
        users: 1,
        late: 0,
    });
    let before = mem::replace(&mut rest.bytes, bytes);
    change_held(device, bytes, before);
}

/// Number of bytes of a device that the process holds or is asking for; 0 without a limit.
pub fn held(device: i32) -> u64 {
    of(device).load(Ordering::Acquire)
}
