//! Which blocks are live at the same time as one.

use super::Block;

/// Pairs up to which each block has a list of its neighbours: 160 MB.
const LISTED: u64 = 20_000_000;

/// The life of a block.
#[derive(Clone, Copy)]
struct Entry {
    from: usize,
    to: usize,
    block: u32,
}

/// Finds the neighbours of each block: those that live when it comes, and those that come while it lives.
pub struct Neighbours {
    /// In the order of their beginnings.
    entries: Vec<Entry>,
    /// What lives at every `every`th entry, by index.
    stops: Vec<Vec<u32>>,
    every: usize,
    /// Where the list of each block begins, and all lists.
    lists: Option<(Vec<usize>, Vec<u32>)>,
    /// How often one block comes while another lives.
    pub pairs: u64,
}

impl Neighbours {
    /// Of blocks with lives in sections.
    pub fn of(blocks: &[Block]) -> Neighbours {
        let mut entries: Vec<Entry> = Vec::with_capacity(blocks.len());
        for (at, block) in blocks.iter().enumerate() {
            entries.extend(block.lives().map(|life| Entry {
                from: life.from,
                to: life.to,
                block: at as u32,
            }));
        }
        entries.sort_unstable_by_key(|entry| (entry.from, entry.block));
        let pairs = pairs(&entries);
        // As many as live on average: then all stops together take as much memory as the entries.
        let every = (pairs / entries.len().max(1) as u64).max(64) as usize;
        let mut stops = Vec::new();
        let mut live: Vec<u32> = Vec::new();
        for (at, entry) in entries.iter().enumerate() {
            if at % every == 0 {
                live.retain(|other| entries[*other as usize].to > entry.from);
                stops.push(live.clone());
            }
            live.push(at as u32);
        }
        let mut neighbours = Neighbours {
            entries,
            stops,
            every,
            lists: None,
            pairs,
        };
        if pairs <= LISTED {
            neighbours.lists = Some(neighbours.lists(blocks));
        }
        neighbours
    }

    fn lists(&self, blocks: &[Block]) -> (Vec<usize>, Vec<u32>) {
        let (mut begins, mut all) = (vec![0], Vec::new());
        let mut seen = vec![u32::MAX; blocks.len()];
        for (at, block) in blocks.iter().enumerate() {
            seen[at] = at as u32;
            self.walk(block, |other| {
                if std::mem::replace(&mut seen[other as usize], at as u32) != at as u32 {
                    all.push(other);
                }
            });
            begins.push(all.len());
        }
        (begins, all)
    }

    fn walk(&self, block: &Block, mut found: impl FnMut(u32)) {
        for life in block.lives() {
            let first = self.entries.partition_point(|other| other.from < life.from);
            let last = self.entries.partition_point(|other| other.from < life.to);
            let stop = first / self.every;
            for at in self.stops.get(stop).into_iter().flatten() {
                let other = &self.entries[*at as usize];
                if other.to > life.from {
                    found(other.block);
                }
            }
            let since = (stop * self.every).min(first);
            for other in &self.entries[since..first] {
                if other.to > life.from {
                    found(other.block);
                }
            }
            for other in &self.entries[first..last] {
                found(other.block);
            }
        }
    }

    /// Names the neighbours of a block; one that meets it twice may be named twice.
    #[inline]
    pub fn each(&self, blocks: &[Block], at: usize, mut found: impl FnMut(usize)) {
        match &self.lists {
            Some((begins, all)) => {
                for other in &all[begins[at]..begins[at + 1]] {
                    found(*other as usize);
                }
            }
            None => self.walk(&blocks[at], |other| {
                if other as usize != at {
                    found(other as usize);
                }
            }),
        }
    }
}

/// How many are live when another comes, all added up.
fn pairs(entries: &[Entry]) -> u64 {
    let mut ends: Vec<usize> = entries.iter().map(|entry| entry.to).collect();
    ends.sort_unstable();
    let (mut gone, mut pairs) = (0, 0);
    for (come, entry) in entries.iter().enumerate() {
        while ends.get(gone).is_some_and(|end| *end <= entry.from) {
            gone += 1;
        }
        pairs += (come - gone) as u64;
    }
    pairs
}
