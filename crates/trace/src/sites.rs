//! The sites part: places in source code that interpreters named, each kept once.
//!
//! A stack of an interpreted language has no return addresses that identify its functions. Its
//! frames are sites: a name, a file and a line. An interpreter finds a site by a key of its own. A
//! table in private memory leads from the key to the site, so that the texts are read once.

use std::sync::atomic::{AtomicU64, Ordering};

use super::index::{Index, mix};
use super::ring::Word;
use super::space::Room;

#[cfg(test)]
mod tests;

/// Layout of the part: records of two words, the index of a record being its id. The words of the
/// first [`FIRST`](layout::FIRST) records have other uses.
pub mod layout {
    /// Word: number of records handed out; more than fit once the part is full.
    pub const HANDED_OUT: usize = 0;
    /// Word: number of look-ups without a site, because it did not fit.
    pub const CUT: usize = 1;
    /// Id of the first record of a site.
    pub const FIRST: u32 = 4;
    /// Words of a record in this version.
    pub const WORDS: usize = 2;
    /// Bytes of a record in this version.
    pub const BYTES: usize = 8 * WORDS;
    /// Bit in the first word of a record, which is written last: it is complete. Below is the line.
    /// The second word: string id of the name, string id of the file × 2³².
    pub const COMMITTED: u64 = 1 << 63;
}

/// Place in source code: function, file and line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Site {
    /// String id of the name of the function.
    pub name: u32,
    /// String id of the path of the file.
    pub file: u32,
    /// Line in the file; 0 if there is none.
    pub line: u32,
}

impl Site {
    #[inline]
    fn encode(self) -> [u64; layout::WORDS] {
        [
            layout::COMMITTED | u64::from(self.line),
            u64::from(self.name) | u64::from(self.file) << 32,
        ]
    }
}

/// Number of words of a [`Writer::site`](crate::Writer::site) key.
pub const KEY: usize = 4;

/// The sites part, and an index of it.
#[derive(Debug)]
pub struct Sites<'a, W> {
    words: &'a [W],
    index: Index<W>,
    keys: Keys<W>,
    room: Room,
}

impl<'a, W: Word> Sites<'a, W> {
    /// Returns sites over the words of the part, which are zero.
    pub fn new(words: &'a [W], index: Index<W>, keys: Keys<W>) -> Sites<'a, W> {
        Sites {
            words,
            index,
            keys,
            room: Room::default(),
        }
    }

    /// Places the sites in a file that grows.
    pub fn within(self, room: Room) -> Sites<'a, W> {
        Sites { room, ..self }
    }

    /// Returns the id of the site with this key. If the key is new, or there was no room for it,
    /// `make` gives the site. `None` if it does not fit, which is counted, or if `make` returns
    /// `None`.
    #[inline]
    pub fn find(&self, key: &[u64; KEY], make: impl FnOnce() -> Option<Site>) -> Option<u32> {
        if let Some(known) = self.keys.find(key) {
            return Some(known);
        }
        self.make(key, make)
    }

    #[cold]
    fn make(&self, key: &[u64; KEY], make: impl FnOnce() -> Option<Site>) -> Option<u32> {
        let id = self.add(make()?)?;
        self.keys.add(key, id);
        Some(id)
    }

    fn add(&self, site: Site) -> Option<u32> {
        let [first, second] = site.encode();
        let same = |id| {
            self.record(id)
                .is_some_and(|record| load(record) == (first, second))
        };
        let found = self
            .index
            .find_or_add(mix(first, second), same, || self.append(site));
        if found.is_none()
            && let Some(cut) = self.words.get(layout::CUT)
        {
            cut.fetch_add(1, Ordering::Relaxed);
        }
        found
    }

    fn append(&self, site: Site) -> Option<u32> {
        let handed_out = self.words.get(layout::HANDED_OUT)?;
        let place = |count: u64| {
            let id = u32::try_from(count).ok()?.checked_add(layout::FIRST)?;
            let record = self.record(id)?;
            let has_room = self.room.has(id as usize * layout::BYTES, layout::BYTES);
            has_room.then_some((id, record))
        };
        // Checked first, so that the count does not grow for ever.
        place(handed_out.load(Ordering::Relaxed))?;
        // Only the place must belong to no other thread.
        let (id, [first, second]) = place(handed_out.fetch_add(1, Ordering::Relaxed))?;
        let [head, rest] = site.encode();
        second.store(rest, Ordering::Relaxed);
        // Release: a reader that sees the record complete sees all of it.
        first.store(head, Ordering::Release);
        Some(id)
    }

    fn record(&self, id: u32) -> Option<&'a [W; layout::WORDS]> {
        record(self.words, layout::WORDS, id)
    }
}

/// Map from keys to sites, in private memory. Keys are added, never changed.
#[derive(Debug)]
pub struct Keys<W> {
    index: Index<W>,
    /// Records of [`WORDS`] words: the key, then the id of the site.
    records: Box<[W]>,
    /// Number of records handed out; more than there are once all are used.
    used: W,
}

/// Number of words of a record: half a cache line would be a word too short.
const WORDS: usize = 8;

impl Keys<AtomicU64> {
    /// Returns a table for this many keys. `None` if there is not enough memory.
    pub fn for_entries(entries: usize) -> Option<Keys<AtomicU64>> {
        Some(Keys {
            index: Index::for_entries(entries)?,
            records: crate::index::zeros(entries.saturating_add(1).saturating_mul(WORDS))?,
            used: AtomicU64::new(0),
        })
    }
}

impl<W: Word> Keys<W> {
    #[inline]
    fn find(&self, key: &[u64; KEY]) -> Option<u32> {
        let same = |number| self.holds(number, key);
        let number = self.index.find_or_add(hash(key), same, || None)?;
        let site = self.record(number)?.get(KEY)?;
        u32::try_from(site.load(Ordering::Relaxed)).ok()
    }

    fn add(&self, key: &[u64; KEY], site: u32) {
        let same = |number| self.holds(number, key);
        self.index.find_or_add(hash(key), same, || {
            let fits = |number: u64| {
                // Numbers begin at 1: the index takes 0 for a free place.
                let number = u32::try_from(number).ok()?.checked_add(1)?;
                self.record(number).map(|record| (number, record))
            };
            // Checked first, so that the count does not grow for ever.
            fits(self.used.load(Ordering::Relaxed))?;
            let (number, record) = fits(self.used.fetch_add(1, Ordering::Relaxed))?;
            // Relaxed: the index publishes the number with release.
            for (word, value) in record.iter().zip(key.iter().copied().chain([site.into()])) {
                word.store(value, Ordering::Relaxed);
            }
            Some(number)
        });
    }

    #[inline]
    fn holds(&self, number: u32, key: &[u64; KEY]) -> bool {
        let Some([a, b, c, d, ..]) = self.record(number) else {
            return false;
        };
        let load = |word: &W| word.load(Ordering::Relaxed);
        // Without a branch for each word: they are in one cache line, and mostly all equal.
        let differ = load(a) ^ key[0] | load(b) ^ key[1] | load(c) ^ key[2] | load(d) ^ key[3];
        differ == 0
    }

    #[inline]
    fn record(&self, number: u32) -> Option<&[W; WORDS]> {
        let at = usize::try_from(number).ok()?.checked_mul(WORDS)?;
        let record = self.records.get(at..at.checked_add(WORDS)?)?;
        record.try_into().ok()
    }
}

#[inline]
fn hash([a, b, c, d]: &[u64; KEY]) -> u64 {
    mix(*a ^ c.rotate_left(32), *b ^ d.rotate_left(16))
}

/// Returns the site of an id, where each record has `each` words; `None` if there is none. Never
/// trusts the content of the words.
pub fn site<W: Word>(words: &[W], each: usize, id: u32) -> Option<Site> {
    let (first, second) = load(record(words, each, id).filter(|_| id >= layout::FIRST)?);
    (first & layout::COMMITTED != 0).then_some(Site {
        name: second as u32,
        file: (second >> 32) as u32,
        line: first as u32,
    })
}

fn record<W>(words: &[W], each: usize, id: u32) -> Option<&[W; layout::WORDS]> {
    let at = usize::try_from(id).ok()?.checked_mul(each)?;
    words
        .get(at..at.checked_add(layout::WORDS)?)?
        .try_into()
        .ok()
}

fn load<W: Word>([first, second]: &[W; layout::WORDS]) -> (u64, u64) {
    // Acquire: the rest is as it was when the record was completed.
    (
        first.load(Ordering::Acquire),
        second.load(Ordering::Relaxed),
    )
}
