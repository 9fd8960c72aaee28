//! Free blocks in the order of their addresses. A search finds the lowest block of a sufficient
//! size.
//!
//! The blocks lie in buckets of a bounded size. Each bucket knows its largest block, so a search
//! skips whole buckets. A change moves the blocks of one bucket only.

use rustc_hash::FxHashMap;

/// Most blocks of a bucket; a fuller one is split in two.
const FULL: usize = 128;

/// A free block of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Free {
    address: u64,
    bytes: u64,
    id: u32,
}

/// Blocks in a row, the lowest address first; never empty.
#[derive(Debug)]
struct Bucket {
    all: Vec<Free>,
    /// Bytes of the largest block.
    most: u64,
}

impl Bucket {
    fn of(all: Vec<Free>) -> Bucket {
        let most = all.iter().map(|free| free.bytes).max().unwrap_or(0);
        Bucket { all, most }
    }

    fn lowest(&self) -> u64 {
        self.all.first().map_or(0, |free| free.address)
    }
}

/// Buckets of the free blocks, by group.
#[derive(Debug, Default)]
pub(super) struct FirstFit {
    groups: FxHashMap<u32, Vec<Bucket>>,
}

impl FirstFit {
    /// Adds a block to a group.
    pub fn insert(&mut self, group: u32, address: u64, bytes: u64, id: u32) {
        let buckets = self.groups.entry(group).or_default();
        let at = place(buckets, address);
        let free = Free { address, bytes, id };
        let Some(bucket) = buckets.get_mut(at) else {
            buckets.push(Bucket::of(vec![free]));
            return;
        };
        let before = bucket.all.partition_point(|other| other.address < address);
        bucket.all.insert(before, free);
        bucket.most = bucket.most.max(bytes);
        if bucket.all.len() > FULL {
            let upper = bucket.all.split_off(FULL / 2);
            *bucket = Bucket::of(std::mem::take(&mut bucket.all));
            buckets.insert(at + 1, Bucket::of(upper));
        }
    }

    /// Removes the block at an address.
    pub fn remove(&mut self, group: u32, address: u64) {
        let Some(buckets) = self.groups.get_mut(&group) else {
            return;
        };
        let at = place(buckets, address);
        let Some(bucket) = buckets.get_mut(at) else {
            return;
        };
        let found = bucket
            .all
            .binary_search_by_key(&address, |free| free.address);
        let Ok(found) = found else { return };
        let gone = bucket.all.remove(found);
        if bucket.all.is_empty() {
            buckets.remove(at);
        } else if gone.bytes == bucket.most {
            *bucket = Bucket::of(std::mem::take(&mut bucket.all));
        }
    }

    /// Number of the lowest block in a group with at least `bytes` bytes.
    pub fn first(&self, group: u32, bytes: u64) -> Option<u32> {
        let buckets = self.groups.get(&group)?;
        let bucket = buckets.iter().find(|bucket| bucket.most >= bytes)?;
        let found = bucket.all.iter().find(|free| free.bytes >= bytes);
        found.map(|free| free.id)
    }
}

/// Index of the bucket for an address: it contains its block, or a new block belongs there.
fn place(buckets: &[Bucket], address: u64) -> usize {
    let after = buckets.partition_point(|bucket| bucket.lowest() <= address);
    after.saturating_sub(1)
}
