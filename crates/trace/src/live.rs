//! The live table: every block that is live now, exact at every instant, even if the process is
//! killed.
//!
//! The table is a hash table of groups of seven keys. One cache line tells if a block is in a
//! group; another holds its entry. A block whose home group is full goes on to the next group, and
//! each group that it passed counts it. A search ends at the first group that no block passed. So a
//! removal leaves no trace, and the table never has to be cleaned.
//!
//! The table is used from its first groups on, so that a process with few blocks touches few pages.
//! At first the homes are among the first [`FIRST_GROUPS`]. As groups fill, the homes of the next
//! level are among the following groups, seven times as many, and so on. As chains of full groups
//! grow long, all groups become homes again. An entry names the level by which the block found its
//! home. A search begins with the newest level.
//!
//! Blocks that their owner numbers have places of [their own](own), in groups behind these.
//!
//! The table takes no lock and uses no heap. The caller must alternate insertions and removals of a
//! block, each complete before the next begins. A caller that hands blocks out under a lock meets
//! this requirement.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::event::Event;
use super::layout::live::{FREE, GROUP_BYTES, HEAD_BYTES};
use super::ring::{Word, prefetch};
use super::space::Room;

mod group;
#[cfg(all(test, not(miri)))]
mod model;
mod own;
#[cfg(test)]
mod tests;

use group::LiveEntry;
pub use group::{Group, Removed, Seen, look};
use own::OwnPlaces;
pub use own::{Numbers, OwnPlace, RANGE};

/// Number of groups that a block tries, from its home on.
const TRIES: usize = 32;

/// Number of groups for the homes of the first blocks: 64 KiB with the bytes before them.
const FIRST_GROUPS: usize = 127;
/// Largest number of levels. The groups up to the last home of a level are eight times as many as
/// those of the level before.
const LEVELS: usize = 10;
/// Number of levels after the ones with homes of their own. In each of them all groups are homes,
/// by another hash.
const AGAIN: usize = 2;
/// Number of levels whose homes get their space ahead of use: 4.5 MiB with the last one.
const AHEAD: usize = 3;
/// Number of successive full groups from which on the table is widened.
const CROWDED: usize = 2;
/// Place in a group from which on a new block widens the table, too. In fuller groups searches
/// differ in length, and each branch that the processor mispredicts costs some 10 ns. This holds up
/// to level [`DENSE_LEVELS`], which takes 4 MiB at most.
const DENSE: usize = 3;
const DENSE_LEVELS: usize = 2;

/// Place in the table where a block is entered, or is searched first.
#[derive(Clone, Copy, Debug)]
pub struct Spot {
    key: u64,
    level: usize,
    home: usize,
}

#[derive(Clone, Copy, Debug)]
struct Homes {
    from: usize,
    count: usize,
    /// Number mixed into a key before it is hashed.
    salt: u64,
}

/// A view of the groups of a live table.
#[derive(Debug)]
pub struct Live<'a, W> {
    /// Number of blocks that found no place.
    missed: &'a W,
    groups: &'a [Group<W>],
    own: OwnPlaces<'a, W>,
    /// Groups that are homes, by level.
    homes: [Homes; LEVELS],
    /// First level with which every group is a home of some level.
    all: usize,
    /// Level by which blocks are entered. A thread that removes a block runs after the thread that
    /// entered it, and sees no lower level.
    level: AtomicUsize,
    /// Number of levels, from the first on, whose homes all have space.
    ready: AtomicUsize,
    room: Room,
}

impl<'a, W: Word> Live<'a, W> {
    /// Returns a table over these groups. The last `own` groups are for blocks with places of their
    /// own.
    pub fn new(missed: &'a W, groups: &'a [Group<W>], own: usize) -> Live<'a, W> {
        let (groups, own) = groups.split_at(groups.len().saturating_sub(own));
        let own = OwnPlaces::new(own, groups.len());
        let (mut end, mut all) = (0, 0);
        let homes = std::array::from_fn(|level| {
            if level > 0 && end == groups.len() {
                let again = (level - all) as u64;
                return Homes {
                    from: 0,
                    count: end,
                    salt: again.wrapping_mul(0x2545_f491_4f6c_dd1d),
                };
            }
            let last = if level + AGAIN + 1 < LEVELS {
                FIRST_GROUPS << (3 * level)
            } else {
                groups.len()
            };
            let from = end;
            end = last.min(groups.len());
            all = level;
            Homes {
                from,
                count: end - from,
                salt: 0,
            }
        });
        Live {
            missed,
            groups,
            own,
            homes,
            all,
            level: AtomicUsize::new(0),
            ready: AtomicUsize::new(LEVELS),
            room: Room::default(),
        }
    }

    /// Places the table in a file that grows.
    pub fn within(self, room: Room) -> Live<'a, W> {
        Live {
            room,
            ready: AtomicUsize::new(0),
            ..self
        }
    }

    /// Takes space for the homes by which blocks are entered now, so that no insertion has to check
    /// for space. For use off the hot path.
    pub fn prepare(&self) {
        let used = self.level.load(Ordering::Relaxed);
        for level in self.ready.load(Ordering::Relaxed)..AHEAD.min(used + 1) {
            let Some(homes) = self.homes.get(level) else {
                return;
            };
            let at = HEAD_BYTES + homes.from * GROUP_BYTES;
            if !self.room.has(at, homes.count * GROUP_BYTES) {
                return;
            }
            // Relaxed: the pages are there for every thread, whether it sees this store or not.
            self.ready.store(level + 1, Ordering::Relaxed);
        }
    }

    /// Returns the place that belongs to a block's number. Gives it one if there is room.
    #[inline(always)]
    pub fn own_place(&self, numbers: &Numbers, number: u32) -> Option<OwnPlace<'a, W>> {
        self.own.get_or_give(&self.room, numbers, number)
    }

    /// Returns the place that belongs to a block's number, if it has one.
    #[inline(always)]
    pub fn known_place(&self, numbers: &Numbers, number: u32) -> Option<OwnPlace<'a, W>> {
        self.own.get(numbers, number)
    }

    /// Returns the place where the block of a [key](super::layout::live::key) is entered now, and
    /// is searched first.
    #[inline]
    pub fn spot(&self, key: Option<u64>) -> Option<Spot> {
        let key = key?;
        let level = self.level.load(Ordering::Relaxed);
        let home = self.home(key, level);
        Some(Spot { key, level, home })
    }

    /// Inserts a block with the words of its event. A block without a key, or with no room within
    /// reach, is counted as missed.
    #[inline]
    pub fn insert(&self, spot: Option<Spot>, words: &[u64; 7]) {
        if let Some(Spot { key, level, home }) = spot {
            let has_space = level < self.ready.load(Ordering::Relaxed) || self.takes_space(home);
            let group = self.groups.get(home).filter(|_| has_space);
            match group.and_then(|group| group.put(key, level, words)) {
                Some(place) if place < DENSE || level >= DENSE_LEVELS.min(self.all) => return,
                Some(_) => return self.widen(level),
                None if self.insert_beyond(key, level, words) => return,
                None => {}
            }
        }
        self.missed.fetch_add(1, Ordering::Relaxed);
    }

    /// Prefetches the keys that tell if a block is there, and its most likely entry.
    #[inline]
    pub fn prefetch(&self, spot: Option<Spot>) {
        if let Some(group) = spot.and_then(|spot| self.groups.get(spot.home)) {
            prefetch(&group.keys);
            prefetch(&group.entries[0]);
        }
    }

    /// Takes a block out; `None` if it is not there.
    #[inline]
    pub fn remove(&self, spot: Option<Spot>) -> Option<Removed> {
        let Spot { key, level, home } = spot?;
        let has_space = level < self.ready.load(Ordering::Relaxed) || self.has_space(home);
        let group = self.groups.get(home).filter(|_| has_space);
        match group.and_then(|group| group.take(key)) {
            // The common case: the place where the block would be entered now, by this level.
            Some((found, of)) if of == level => Some(found),
            Some((found, of)) => {
                self.unpass(self.home(key, of), home);
                Some(found)
            }
            None => self.remove_beyond(key),
        }
    }

    /// Gives each block to `see`, as the event that made it. A block that is inserted or removed
    /// meanwhile may be given or not.
    pub fn each(&self, mut see: impl FnMut(&Event)) {
        for (_, group) in self.used() {
            for (key, entry) in group.keys.iter().zip(&group.entries) {
                if let Seen::Block(_, words) = look(key, &entry.words) {
                    see(&Event::from_words(words).1);
                }
            }
        }
    }

    /// Takes out all blocks for which `wanted` is true, and gives each to `removed`. Both get the
    /// event that made the block. No other thread may remove one of these blocks at the same time.
    /// Not for hot paths: it looks at the whole table.
    pub fn remove_where(
        &self,
        mut wanted: impl FnMut(&Event) -> bool,
        mut removed: impl FnMut(&Event),
    ) {
        for (at, group) in self.used() {
            for (key, entry) in group.keys.iter().zip(&group.entries) {
                let Seen::Block(seen, words) = look(key, &entry.words) else {
                    continue;
                };
                let (_, event) = Event::from_words(words);
                let level = entry.level();
                // Release as in `take`.
                if wanted(&event) && key.swap_if(seen, FREE, Ordering::Release) {
                    if at < self.groups.len() {
                        self.unpass(self.home(seen, level), at);
                    }
                    removed(&event);
                }
            }
        }
    }

    /// Returns the groups that may hold blocks, with their indexes.
    fn used(&self) -> impl Iterator<Item = (usize, &'a Group<W>)> {
        let groups = self.groups.iter().chain(self.own.groups()).enumerate();
        groups.filter(|(at, _)| self.has_space(*at))
    }

    /// True if the page of a group has space on the disk. A group without it was never written. It
    /// must not be read either: on a full tmpfs that faults.
    fn has_space(&self, at: usize) -> bool {
        self.room.is_present(HEAD_BYTES + at * GROUP_BYTES)
    }

    /// True if the page of a group has space; takes it if not.
    fn takes_space(&self, at: usize) -> bool {
        self.room.has(HEAD_BYTES + at * GROUP_BYTES, GROUP_BYTES)
    }

    /// Enters a block whose home is full.
    #[cold]
    fn insert_beyond(&self, key: u64, level: usize, words: &[u64; 7]) -> bool {
        let top = self.all + AGAIN;
        for level in level..=top {
            if self.insert_from(self.home(key, level), key, level, words) {
                return true;
            }
            if level < top {
                self.widen(level);
            }
        }
        // Then the levels already used whose homes are all groups.
        let mut others = self.all + 1..level;
        others.any(|level| self.insert_from(self.home(key, level), key, level, words))
    }

    /// Enters a block into its home or a group after it. `false` if they are full, or one of them
    /// has no space on the disk: a group that was passed is always one that was written.
    fn insert_from(&self, home: usize, key: u64, level: usize, words: &[u64; 7]) -> bool {
        let (mut at, mut step) = (home, 0);
        while let Some(group) = self.groups.get(at).filter(|_| self.takes_space(at)) {
            if group.put(key, level, words).is_some() {
                if step >= CROWDED && level <= self.all {
                    self.widen(level);
                }
                return true;
            }
            step += 1;
            if step >= TRIES.min(self.groups.len()) {
                break;
            }
            // A thread that removes the block sees this count, because the removal comes after the
            // insertion.
            group.passed.fetch_add(1, Ordering::Relaxed);
            at = self.after(at);
        }
        self.unpass(home, at);
        false
    }

    /// Raises the level by which blocks are entered.
    #[cold]
    fn widen(&self, level: usize) {
        let relaxed = Ordering::Relaxed;
        // Fails if another thread has raised the level already, which is enough.
        let _ = self
            .level
            .compare_exchange(level, level + 1, relaxed, relaxed);
    }

    /// Takes out a block that is not in the home of its current level.
    #[cold]
    fn remove_beyond(&self, key: u64) -> Option<Removed> {
        let level = self.level.load(Ordering::Relaxed);
        let mut levels = (0..=level).rev();
        levels.find_map(|level| self.remove_from(self.home(key, level), key))
    }

    fn remove_from(&self, home: usize, key: u64) -> Option<Removed> {
        let mut at = home;
        for _ in 0..TRIES.min(self.groups.len()) {
            let group = self.groups.get(at).filter(|_| self.has_space(at))?;
            if let Some((found, level)) = group.take(key) {
                self.unpass(self.home(key, level), at);
                return Some(found);
            }
            if !group.is_passed() {
                break;
            }
            at = self.after(at);
        }
        None
    }

    /// Removes a block from the counts of the groups from its home to its place.
    fn unpass(&self, home: usize, to: usize) {
        let mut at = home;
        while at != to {
            if let Some(group) = self.groups.get(at) {
                group.passed.fetch_add(u64::MAX, Ordering::Relaxed);
            }
            at = self.after(at);
        }
    }

    /// Returns the home of a key by a level. The key is multiplied twice by 2^64 over the golden
    /// ratio: once would heap up addresses at some regular distances.
    #[inline]
    fn home(&self, key: u64, level: usize) -> usize {
        const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
        let Some(Homes { from, count, salt }) = self.homes.get(level) else {
            return 0;
        };
        let hash = (key ^ salt).wrapping_mul(GOLDEN);
        let hash = (hash ^ hash >> 29).wrapping_mul(GOLDEN);
        // The upper half of the hash as a fraction of the groups.
        from + ((hash >> 32).wrapping_mul(*count as u64) >> 32) as usize
    }

    fn after(&self, at: usize) -> usize {
        let next = at.wrapping_add(1);
        if next < self.groups.len() { next } else { 0 }
    }
}

#[cfg(test)]
impl<W: Word> Live<'_, W> {
    fn insert_key(&self, key: Option<u64>, words: &[u64; 7]) {
        self.insert(self.spot(key), words);
    }

    fn remove_key(&self, key: Option<u64>) -> Option<Removed> {
        self.remove(self.spot(key))
    }
}
