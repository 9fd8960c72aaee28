//! The live table: every block that is live now, exact at every instant, whatever kills the process.
//!
//! A hash table of groups of seven keys: one cache line says whether a block is in a group, another is its entry. A
//! block that finds its home group full goes on to the next, and each group that it passed counts it: a search ends at
//! the first group that no block passed, so that a removal leaves no trace and the table never has to be cleaned.
//!
//! The table is used from its first groups on, so that a process with few blocks touches few pages: homes are among
//! the first [`FIRST_GROUPS`], then, as groups fill, among the next ones, seven times as many, and so on, and, as chains
//! of full groups grow long, among all. An entry says by which of these levels it found its home; a search begins with
//! the newest.
//!
//! Blocks that their owner numbers have places of [their own](own), in groups behind those.
//!
//! No lock and no heap. What is required of the caller: a block is inserted, then removed, then inserted again, each
//! before the other and once. A caller that hands blocks out under a lock meets this requirement.

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
pub use own::{Numbers, OwnPlace};

/// How many groups a block tries, from its home on.
const TRIES: usize = 32;

/// Groups among which the first blocks have their homes: 64 KiB with what comes before them.
const FIRST_GROUPS: usize = 127;
/// Levels at most. The groups up to the last home of a level are eight times as many as those of the level before.
const LEVELS: usize = 10;
/// Levels after those that have homes of their own: all groups are homes again, each time by another hash.
const AGAIN: usize = 2;
/// Levels whose homes get their space ahead of use: 4.5 MiB with the last one.
const AHEAD: usize = 3;
/// If this many successive groups are full, more are needed.
const CROWDED: usize = 2;
/// A block at this place of a group or behind it widens the table, too: in fuller groups searches differ in length, and
/// each branch that the processor mispredicts costs some 10 ns. Up to level [`DENSE_LEVELS`], which takes 4 MiB at most.
const DENSE: usize = 3;
const DENSE_LEVELS: usize = 2;

/// Where a block is entered, or is looked for first.
#[derive(Clone, Copy, Debug)]
pub struct Spot {
    key: u64,
    level: usize,
    home: usize,
}

/// The homes of a level.
#[derive(Clone, Copy, Debug)]
struct Homes {
    /// The first group.
    from: usize,
    /// How many there are.
    count: usize,
    /// What a key is mixed with.
    salt: u64,
}

/// A view of the groups of a live table.
#[derive(Debug)]
pub struct Live<'a, W> {
    /// Blocks that found no place.
    missed: &'a W,
    groups: &'a [Group<W>],
    own: OwnPlaces<'a, W>,
    /// Which of the groups are homes, by level.
    homes: [Homes; LEVELS],
    /// The first level with which every group is a home of some level.
    all: usize,
    /// The level by which blocks are entered. A thread that removes a block runs after the thread that entered it, and
    /// sees no lower level.
    level: AtomicUsize,
    /// Levels of which all homes have space, the first of them.
    ready: AtomicUsize,
    room: Room,
}

impl<'a, W: Word> Live<'a, W> {
    /// A table over these groups, of which the last `own` are for blocks with places of their own.
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

    /// In a file that grows.
    pub fn within(self, room: Room) -> Live<'a, W> {
        Live {
            room,
            ready: AtomicUsize::new(0),
            ..self
        }
    }

    /// Takes space for the homes by which blocks are entered now, so that no block has to look whether there is any. Off
    /// the hot path.
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

    /// The place of a block's own; it gets one if there is room.
    #[inline(always)]
    pub fn own_place(&self, numbers: &Numbers, number: u32) -> Option<OwnPlace<'a, W>> {
        self.own.get_or_give(&self.room, numbers, number)
    }

    /// The place of a block's own, if it has one.
    #[inline(always)]
    pub fn known_place(&self, numbers: &Numbers, number: u32) -> Option<OwnPlace<'a, W>> {
        self.own.get(numbers, number)
    }

    /// Where the block of a [key](super::layout::live::key) is entered now, and is looked for first.
    #[inline]
    pub fn spot(&self, key: Option<u64>) -> Option<Spot> {
        let key = key?;
        let level = self.level.load(Ordering::Relaxed);
        let home = self.home(key, level);
        Some(Spot { key, level, home })
    }

    /// Inserts a block with the words of its event. A block without a key, or with no room within reach,
    /// is counted as missed.
    #[inline]
    pub fn insert(&self, spot: Option<Spot>, words: &[u64; 7]) {
        if let Some(Spot { key, level, home }) = spot {
            let is_ready = level < self.ready.load(Ordering::Relaxed)
                || self.room.has(HEAD_BYTES + home * GROUP_BYTES, GROUP_BYTES);
            let group = self.groups.get(home).filter(|_| is_ready);
            match group.and_then(|group| group.put(key, level, words)) {
                Some(place) if place < DENSE || level >= DENSE_LEVELS.min(self.all) => return,
                Some(_) => return self.widen(level),
                None if self.insert_beyond(key, level, words) => return,
                None => {}
            }
        }
        self.missed.fetch_add(1, Ordering::Relaxed);
    }

    /// Fetches what tells whether a block is there, and, as likely as not, its entry.
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
        match self.groups.get(home)?.take(key) {
            // Where it would be entered now, and by this level: mostly.
            Some((found, of)) if of == level => Some(found),
            Some((found, of)) => {
                self.unpass(self.home(key, of), home);
                Some(found)
            }
            None => self.remove_beyond(key),
        }
    }

    /// Gives each block, by the event that made it. Of blocks that come and go meanwhile it may give some.
    pub fn each(&self, mut see: impl FnMut(&Event)) {
        for (_, group) in self.used() {
            for (key, entry) in group.keys.iter().zip(&group.entries) {
                if let Seen::Block(_, words) = look(key, &entry.words) {
                    see(&Event::from_words(words).1);
                }
            }
        }
    }

    /// Takes out all blocks that are wanted, given the events that made them, and says which were taken. No other
    /// thread may remove one of these at the same time. Not for hot paths: it looks at the whole table.
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

    /// The groups that may hold blocks, with their indexes.
    fn used(&self) -> impl Iterator<Item = (usize, &'a Group<W>)> {
        let groups = self.groups.iter().chain(self.own.groups()).enumerate();
        groups.filter(|(at, _)| self.room.is_present(HEAD_BYTES + at * GROUP_BYTES))
    }

    /// Enters a block into a group, if it has room.
    fn put(&self, at: usize, key: u64, level: usize, words: &[u64; 7]) -> bool {
        self.room.has(HEAD_BYTES + at * GROUP_BYTES, GROUP_BYTES)
            && self
                .groups
                .get(at)
                .is_some_and(|group| group.put(key, level, words).is_some())
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
        // By those that had their turn and have all groups.
        let mut others = self.all + 1..level;
        others.any(|level| self.insert_from(self.home(key, level), key, level, words))
    }

    fn insert_from(&self, home: usize, key: u64, level: usize, words: &[u64; 7]) -> bool {
        if self.put(home, key, level, words) {
            return true;
        }
        let mut at = home;
        for step in 1..TRIES.min(self.groups.len()) {
            if let Some(group) = self.groups.get(at)
                && self.room.is_present(HEAD_BYTES + at * GROUP_BYTES)
            {
                // A thread that removes the block finds it counted, because the removal comes after the insertion.
                group.passed.fetch_add(1, Ordering::Relaxed);
            }
            at = self.after(at);
            if self.put(at, key, level, words) {
                if step >= CROWDED && level <= self.all {
                    self.widen(level);
                }
                return true;
            }
        }
        self.unpass(home, at);
        false
    }

    /// Has blocks entered by the next level.
    #[cold]
    fn widen(&self, level: usize) {
        let relaxed = Ordering::Relaxed;
        // If another thread did it, or more, that is as good.
        let _ = self
            .level
            .compare_exchange(level, level + 1, relaxed, relaxed);
    }

    /// Takes out a block that is not in its home by a level.
    #[cold]
    fn remove_beyond(&self, key: u64) -> Option<Removed> {
        let level = self.level.load(Ordering::Relaxed);
        let mut levels = (0..=level).rev();
        levels.find_map(|level| self.remove_from(self.home(key, level), key))
    }

    fn remove_from(&self, home: usize, key: u64) -> Option<Removed> {
        let mut at = home;
        for _ in 0..TRIES.min(self.groups.len()) {
            let group = self.groups.get(at)?;
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

    /// No longer counts a block in the groups from its home to where it was.
    fn unpass(&self, home: usize, to: usize) {
        let mut at = home;
        while at != to {
            if let Some(group) = self.groups.get(at)
                && self.room.is_present(HEAD_BYTES + at * GROUP_BYTES)
            {
                group.passed.fetch_add(u64::MAX, Ordering::Relaxed);
            }
            at = self.after(at);
        }
    }

    /// Where a block belongs, by a level. Multiplied twice by 2^64 over the golden ratio: once would heap up addresses
    /// at some regular distances.
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
