//! The modules part: the programs and libraries that were loaded, in the order in which they were
//! seen.

use std::sync::atomic::Ordering;

use super::ring::Word;
use super::space::Room;

#[cfg(all(test, not(miri)))]
mod model;
#[cfg(test)]
mod tests;

/// Layout of the part: records of eight words, the first of which holds the counts.
pub mod layout {
    /// Word: number of records handed out; more than fit once the part is full.
    pub const HANDED_OUT: usize = 0;
    /// Word: number of modules that did not fit.
    pub const CUT: usize = 1;
    /// Words of a record in this version.
    pub const WORDS: usize = 8;
    /// Bytes of a record in this version.
    pub const BYTES: usize = 8 * WORDS;

    /// Word of a record: [`COMMITTED`], bytes of the build id × 2³², string id of the path.
    pub const HEAD: usize = 0;
    /// Word of a record: address of the module's first byte.
    pub const BEGIN: usize = 1;
    /// Word of a record: address after the module's last byte.
    pub const END: usize = 2;
    /// Word of a record: load bias.
    pub const BIAS: usize = 3;
    /// Word of a record: generation.
    pub const GENERATION: usize = 4;
    /// First of three words of a record with the build id.
    pub const BUILD_ID: usize = 5;
    /// Bit in the head of a record that is complete.
    pub const COMMITTED: u64 = 1 << 63;
    /// Longest build id that is kept, bytes.
    pub const BUILD_ID_MAX: usize = 24;
}

/// Program or library as it was loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Module {
    /// Address of the first mapped byte.
    pub begin: u64,
    /// Address after the last mapped byte.
    pub end: u64,
    /// Difference of a mapped address from the address in the file's symbols, modulo 2^64.
    pub bias: u64,
    /// String id of the module's path.
    pub path: u32,
    /// Generation: 0, or one more than the earlier modules at the same addresses. Frames name the
    /// generation of their module.
    pub generation: u64,
    /// Build id of the file, empty if it has none.
    pub build_id: BuildId,
}

/// Build id that the linker gave: the content of the note `NT_GNU_BUILD_ID`. Empty if it gave none.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct BuildId {
    bytes: [u8; layout::BUILD_ID_MAX],
    length: u8,
}

impl BuildId {
    /// Returns the build id in the content of a note; bytes beyond 24 are cut off.
    pub fn new(note: &[u8]) -> BuildId {
        let mut id = BuildId::default();
        for (to, from) in id.bytes.iter_mut().zip(note) {
            *to = *from;
            id.length += 1;
        }
        id
    }

    /// Returns the bytes of the build id.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.length.into()).unwrap_or_default()
    }
}

impl std::fmt::Debug for BuildId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

impl std::fmt::Display for BuildId {
    /// Writes it in hexadecimal, as tools print it and debug directories name it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut bytes = self.as_bytes().iter();
        bytes.try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// View of the modules part.
#[derive(Debug)]
pub struct Modules<'a, W> {
    words: &'a [W],
    room: Room,
}

impl<'a, W: Word> Modules<'a, W> {
    /// Returns modules over the words of the part, which are zero at first.
    pub fn new(words: &'a [W]) -> Modules<'a, W> {
        Modules {
            words,
            room: Room::default(),
        }
    }

    /// Places the modules in a file that grows.
    pub fn within(self, room: Room) -> Modules<'a, W> {
        Modules { room, ..self }
    }

    /// Adds a module; `false` if it does not fit, which is counted. Any number of threads may call
    /// it. It takes no lock.
    pub fn add(&self, module: &Module) -> bool {
        let added = self.append(module).is_some();
        if !added && let Some(cut) = self.words.get(layout::CUT) {
            cut.fetch_add(1, Ordering::Relaxed);
        }
        added
    }

    fn append(&self, module: &Module) -> Option<()> {
        let handed_out = self.words.get(layout::HANDED_OUT)?;
        let place = |count: u64| {
            let record = record(self.words, layout::WORDS, count)?;
            let at = (count as usize + 1) * layout::BYTES;
            self.room.has(at, layout::BYTES).then_some(record)
        };
        // Checked first, so that the count does not grow for ever.
        place(handed_out.load(Ordering::Relaxed))?;
        // Only the place must belong to no other thread.
        let record = place(handed_out.fetch_add(1, Ordering::Relaxed))?;
        let mut words = [0; layout::WORDS];
        words[layout::BEGIN] = module.begin;
        words[layout::END] = module.end;
        words[layout::BIAS] = module.bias;
        words[layout::GENERATION] = module.generation;
        for (word, bytes) in (layout::BUILD_ID..).zip(module.build_id.bytes.chunks_exact(8)) {
            words[word] = bytes.try_into().map_or(0, u64::from_le_bytes);
        }
        let (head, rest) = record.split_first()?;
        for (word, value) in rest.iter().zip(words.iter().skip(1)) {
            word.store(*value, Ordering::Relaxed);
        }
        let length = u64::from(module.build_id.length);
        // Release: a reader that sees the record complete sees all of it.
        let value = layout::COMMITTED | length << 32 | u64::from(module.path);
        head.store(value, Ordering::Release);
        Some(())
    }
}

/// Returns the record with a number, from 0, where each record has `each` words.
fn record<W>(words: &[W], each: usize, number: u64) -> Option<&[W; layout::WORDS]> {
    let at = usize::try_from(number)
        .ok()?
        .checked_add(1)?
        .checked_mul(each)?;
    words
        .get(at..at.checked_add(layout::WORDS)?)?
        .try_into()
        .ok()
}

/// Returns the complete modules of a part with `each` words per record, in the order in which they
/// were added. Also returns the number of invalid records. Never trusts the content of the words.
pub fn modules<W: Word>(words: &[W], each: usize) -> (Vec<Module>, u64) {
    let handed_out = words.first().map_or(0, |word| word.load(Ordering::Relaxed));
    let records = (0..handed_out).map_while(|number| record(words, each, number));
    let (mut modules, mut senseless) = (Vec::new(), 0);
    for record in records {
        // Acquire: the rest is as it was when the record was completed.
        let head = record[layout::HEAD].load(Ordering::Acquire);
        if head == 0 {
            continue;
        }
        let length = (head ^ layout::COMMITTED) >> 32;
        let word = |at: usize| record[at].load(Ordering::Relaxed);
        let mut build_id = BuildId::default();
        for (at, bytes) in (layout::BUILD_ID..).zip(build_id.bytes.chunks_exact_mut(8)) {
            bytes.copy_from_slice(&word(at).to_le_bytes());
        }
        build_id.length = length.min(layout::BUILD_ID_MAX as u64) as u8;
        let module = Module {
            begin: word(layout::BEGIN),
            end: word(layout::END),
            bias: word(layout::BIAS),
            path: head as u32,
            generation: word(layout::GENERATION),
            build_id,
        };
        if length > layout::BUILD_ID_MAX as u64 || module.begin > module.end {
            senseless += 1;
        } else {
            modules.push(module);
        }
    }
    (modules, senseless)
}
