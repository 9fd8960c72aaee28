//! Layout of a ledger file. Every word is an atomic, as other processes change it at any time.

use std::sync::atomic::{AtomicU64, Ordering};

pub const MAGIC: u64 = u64::from_le_bytes(*b"gpushled");
pub const VERSION: u64 = 1;
/// Most processes that share a ledger.
pub const SLOTS: usize = 1024;
/// Most devices of a ledger.
pub const DEVICES: usize = 64;
/// Number of words of a process's name.
pub const NAME_WORDS: usize = 8;

/// Content of a file: holes where no process was.
#[derive(Debug)]
#[repr(C)]
pub struct Content {
    pub head: Head,
    pub slots: [Slot; SLOTS],
}

/// Identity of the ledger, and the devices of all processes.
#[derive(Debug)]
#[repr(C, align(4096))]
pub struct Head {
    /// [`MAGIC`], written last when the file is created.
    pub magic: AtomicU64,
    pub version: AtomicU64,
    /// Random identity, by which processes recognise members of their own ledger.
    pub id: [AtomicU64; 2],
    /// Identity of the boot of the machine.
    pub boot: [AtomicU64; 2],
    /// Number of slots up to the last one that was ever used.
    pub used: AtomicU64,
    /// Devices by [`words_of_device`]; zeros where there is none.
    pub devices: [[AtomicU64; 2]; DEVICES],
}

/// Page that one process writes, and that the others sum.
#[derive(Debug)]
#[repr(C, align(4096))]
pub struct Slot {
    /// Process id and start time; 0 for a free slot.
    pub owner: AtomicU64,
    /// Inode of the namespace to which the process id belongs.
    pub namespace: AtomicU64,
    /// Rank of the process plus 1; 0 without a rank.
    pub rank: AtomicU64,
    /// The process's own limit in bytes per device.
    pub limit: AtomicU64,
    pub name: [AtomicU64; NAME_WORDS],
    pub parts: [Part; DEVICES],
}

/// Bytes of one device that a process has.
#[derive(Debug)]
#[repr(C, align(32))]
pub struct Part {
    /// Bytes that the driver gave, or that it may be asked for.
    pub held: AtomicU64,
    /// Bytes of requests that are not decided yet.
    pub asking: AtomicU64,
    /// Bytes that no other process may use.
    pub guaranteed: AtomicU64,
}

impl Part {
    /// Returns the bytes that other processes must leave to this one, with and without requests
    /// that are not decided.
    #[inline]
    pub fn taken(&self) -> Taken {
        // In this order: bytes move from `asking` to `held`, and must not be missed.
        let asking = self.asking.load(Ordering::SeqCst);
        let held = self.held.load(Ordering::SeqCst);
        let guaranteed = self.guaranteed.load(Ordering::SeqCst);
        Taken {
            all: held.saturating_add(asking).max(guaranteed),
            held: held.max(guaranteed),
        }
    }

    pub fn clear(&self) {
        for word in [&self.held, &self.asking, &self.guaranteed] {
            word.store(0, Ordering::SeqCst);
        }
    }
}

/// Bytes that are taken of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Bytes with the requests that are not decided, which `held` leaves out.
    pub all: u64,
    pub held: u64,
}

impl std::ops::Add for Taken {
    type Output = Taken;

    fn add(self, other: Taken) -> Taken {
        Taken {
            all: self.all.saturating_add(other.all),
            held: self.held.saturating_add(other.held),
        }
    }
}

/// Number by which the words of a UUID differ from it: a half of a UUID may be 0.
const MARK: u64 = 0x9e37_79b9_7f4a_7c15;

/// Returns the words of a device's UUID in a ledger.
pub fn words_of_device(uuid: [u8; 16]) -> [u64; 2] {
    words(uuid).map(|word| word ^ MARK)
}

/// Returns the UUID of a device by its words.
pub fn uuid_of(words: [u64; 2]) -> [u8; 16] {
    let [low, high] = words.map(|word| u128::from(word ^ MARK));
    (high << 64 | low).to_le_bytes()
}

/// Splits 16 bytes into words.
pub fn words(bytes: [u8; 16]) -> [u64; 2] {
    let number = u128::from_le_bytes(bytes);
    [number as u64, (number >> 64) as u64]
}

/// Loads two words that are written once.
pub fn load(words: &[AtomicU64; 2]) -> [u64; 2] {
    let [low, high] = words;
    [low.load(Ordering::Acquire), high.load(Ordering::Acquire)]
}

/// Stores a text into words, cut at a character.
pub fn store_text(words: &[AtomicU64], text: &str) {
    let room = words.len() * 8;
    let ends = text.char_indices().map(|(at, one)| at + one.len_utf8());
    let cut = ends.take_while(|end| *end <= room).last().unwrap_or(0);
    let mut bytes = text.as_bytes().get(..cut).unwrap_or_default().to_vec();
    bytes.resize(room, 0);
    for (word, bytes) in words.iter().zip(bytes.chunks_exact(8)) {
        let bytes = bytes.try_into().unwrap_or_default();
        word.store(u64::from_le_bytes(bytes), Ordering::Relaxed);
    }
}

/// Loads a text from words.
pub fn load_text(words: &[AtomicU64]) -> String {
    let bytes: Vec<u8> = words
        .iter()
        .flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes())
        .take_while(|byte| *byte != 0)
        .collect();
    String::from_utf8_lossy(&bytes).into_owned()
}
