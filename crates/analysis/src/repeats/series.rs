//! The level of live memory at the beginning of each pass of several loops, by group of blocks.

use std::hash::Hash;

use rustc_hash::FxHashMap;

use crate::repeats::walk::Loop;

/// Largest number of steps that are kept of all groups together.
const STEPS: usize = 1 << 21;

/// Live memory of one group of blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Live {
    /// Bytes of the live blocks.
    pub bytes: u64,
    /// Number of the live blocks.
    pub blocks: u64,
}

/// Steps of a group through the passes of one loop.
#[derive(Clone, Debug, Default)]
struct Steps {
    /// Pass in which it changed last, counted from 1.
    touched: u32,
    /// Live memory at the beginning of a pass, if it differs from the pass before.
    steps: Vec<(u32, Live)>,
}

impl Steps {
    /// Returns the live memory at the beginning of each pass, given the live memory at the end.
    fn all(&self, passes: u32, end: Live) -> Vec<Live> {
        let mut steps = self.steps.iter().peekable();
        let mut live = Live::default();
        let at = (1..=passes).map(|pass| {
            if let Some((_, next)) = steps.next_if(|(at, _)| *at == pass) {
                live = *next;
            } else if pass > self.touched {
                live = end;
            }
            live
        });
        at.collect()
    }
}

/// Blocks of one group, now and by pass.
#[derive(Clone, Debug, Default)]
struct Group {
    live: Live,
    loops: Vec<Steps>,
}

/// Live memory of a group at the passes of a loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Levels<K> {
    /// Group to which the blocks belong.
    pub group: K,
    /// Live memory at the beginning of each pass.
    pub at: Vec<Live>,
}

/// Follows groups of blocks through the passes of loops.
#[derive(Debug)]
pub struct Series<K> {
    starts: Vec<Vec<u64>>,
    /// Number of begun passes of each loop.
    begun: Vec<u32>,
    /// Bytes that were allocated up to the beginning of each pass.
    volumes: Vec<Vec<u64>>,
    made: u64,
    /// Bytes that were live at the beginning of each pass.
    totals: Vec<Vec<u64>>,
    now: u64,
    groups: FxHashMap<K, Group>,
    steps: usize,
}

impl<K: Copy + Eq + Hash + Ord> Series<K> {
    /// Returns series through the passes of these loops.
    pub fn new<'a>(loops: impl Iterator<Item = &'a Loop>) -> Series<K> {
        let tickets = |one: &Loop| one.starts.iter().map(|start| start.ticket).collect();
        let starts: Vec<Vec<u64>> = loops.map(tickets).collect();
        Series {
            begun: vec![0; starts.len()],
            volumes: vec![Vec::new(); starts.len()],
            made: 0,
            totals: vec![Vec::new(); starts.len()],
            now: 0,
            starts,
            groups: FxHashMap::default(),
            steps: 0,
        }
    }

    /// Begins the passes that start up to this event.
    pub fn at(&mut self, ticket: u64) {
        let loops = self.starts.iter().zip(&mut self.begun);
        let sums = self.volumes.iter_mut().zip(&mut self.totals);
        for ((starts, begun), (volumes, totals)) in loops.zip(sums) {
            while starts
                .get(*begun as usize)
                .is_some_and(|start| *start <= ticket)
            {
                *begun += 1;
                volumes.push(self.made);
                totals.push(self.now);
            }
        }
    }

    /// Adds an allocated block to a group.
    pub fn allocated(&mut self, group: K, bytes: u64) {
        self.made = self.made.saturating_add(bytes);
        self.now = self.now.saturating_add(bytes);
        let group = self.touch(group);
        group.live.bytes = group.live.bytes.saturating_add(bytes);
        group.live.blocks += 1;
    }

    /// Removes a freed block from a group.
    pub fn freed(&mut self, group: K, bytes: u64) {
        self.now = self.now.saturating_sub(bytes);
        let group = self.touch(group);
        group.live.bytes = group.live.bytes.saturating_sub(bytes);
        group.live.blocks = group.live.blocks.saturating_sub(1);
    }

    /// Returns the levels of the groups that rose more than once from pass to pass of a loop.
    pub fn levels(&self, number: usize) -> impl Iterator<Item = Levels<K>> + '_ {
        let passes = self.begun.get(number).copied().unwrap_or(0);
        self.groups.iter().filter_map(move |(key, group)| {
            let of = group.loops.get(number)?;
            let rises = of.steps.windows(2).filter(|pair| match pair {
                [(_, before), (_, after)] => after.bytes > before.bytes,
                _ => false,
            });
            let last = of.steps.last().map_or(0, |(_, live)| live.bytes);
            let at_end = usize::from(of.touched < passes && group.live.bytes > last);
            let at_start = usize::from(of.steps.first().is_some_and(|(_, live)| live.bytes > 0));
            (rises.count() + at_end + at_start > 1).then(|| Levels {
                group: *key,
                at: of.all(passes, group.live),
            })
        })
    }

    /// Returns the bytes that were allocated up to the beginning of each pass of a loop.
    pub fn volumes(&self, number: usize) -> &[u64] {
        self.volumes.get(number).map_or(&[], Vec::as_slice)
    }

    /// Returns the bytes that were live at the beginning of each pass of a loop.
    pub fn totals(&self, number: usize) -> &[u64] {
        self.totals.get(number).map_or(&[], Vec::as_slice)
    }

    /// Returns the group, after its level at the beginning of the open passes is noted.
    fn touch(&mut self, group: K) -> &mut Group {
        let group = self.groups.entry(group).or_default();
        if group.loops.len() < self.begun.len() {
            group.loops.resize_with(self.begun.len(), Steps::default);
        }
        let live = group.live;
        for (of, begun) in group.loops.iter_mut().zip(&self.begun) {
            if of.touched == *begun {
                continue;
            }
            // It has not changed since then: all passes in between began with the same live memory.
            let since = of.touched + 1;
            of.touched = *begun;
            let before = of.steps.last().map_or(Live::default(), |(_, live)| *live);
            if before != live && self.steps < STEPS {
                of.steps.push((since, live));
                self.steps += 1;
            }
        }
        group
    }
}
