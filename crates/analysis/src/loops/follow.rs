//! The second pass over a run: follows the blocks of a focus through the passes of its loops.

use std::collections::BTreeMap;

use crate::repeats::{Growth, Level, Series, choose};
use rustc_hash::{FxHashMap, FxHashSet};

use super::found::Found;
use super::journal::{Journal, What};
use super::{Given, Iterations};
use crate::ledger::{Block, Focus, Highest, Unseen, Visitor, Walker, in_order};
use gpushim_recording::{Reader, Recording, read};
use gpushim_trace::{Class, Event, Kind, Layer, Record};

/// Key of blocks that belong together: of the same calls, or, without a stack, of the same size.
pub type Group = (u64, u64);

/// Follows blocks through the passes of loops.
pub struct Follow<'a> {
    found: &'a Found,
    walker: Walker,
    /// Moments to come, each with its place in the answer; the first one last.
    moments: Vec<(u64, usize)>,
    live_at: Vec<(u64, Vec<Block>)>,
    /// Last passes of loops to come: the beginning and the loop's number, the first one last.
    ends: Vec<(u64, usize)>,
    sizes: FxHashMap<usize, FxHashMap<Group, Sizes>>,
    notes: Notes<'a>,
}

/// Sizes of a group's blocks: the pass that made one first, and true if another pass made it, too.
#[derive(Debug, Default)]
struct Sizes(FxHashMap<u64, (usize, bool)>);

impl Sizes {
    /// Returns the number of sizes, and of sizes that several passes made.
    fn counts(&self) -> (u64, u64) {
        let again = self.0.values().filter(|(_, again)| *again);
        (self.0.len() as u64, again.count() as u64)
    }
}

/// Results for the blocks of a run.
#[derive(Debug, Default)]
pub struct Followed {
    /// The iterations, if there are any.
    pub iterations: Option<Iterations>,
    /// The loop whose passes memory grows with, and the growth.
    pub growth: Option<(Iterations, Growth<Group>)>,
    /// The judged iterations, if memory does not grow.
    pub steady: Option<Growth<Group>>,
    /// Bytes live at the beginning of each pass of the loop that memory grows with, or of the
    /// iterations.
    pub levels: Vec<u64>,
    /// A stack of each group that grows.
    pub stacks: FxHashMap<Group, u32>,
    /// The blocks that were live at each requested moment, the oldest first.
    pub live_at: Vec<Vec<Block>>,
    /// Events around the moment that was watched.
    pub journal: Option<Journal>,
    /// The highest level by stretch of the run, without `unseen`.
    pub highest: Highest,
    /// Bytes of blocks from before the events, of which only the end is known.
    pub unseen: u64,
    /// A call of one pass around all loops that were found.
    pub inside: Option<String>,
}

impl<'a> Follow<'a> {
    /// Follows a focus through these loops. Each moment is the place of the first event after it;
    /// events around one of them can be watched.
    pub fn new(
        recording: &'a dyn Recording,
        focus: Focus,
        found: &'a Found,
        moments: &[u64],
        watched: Option<u64>,
    ) -> Follow<'a> {
        let live_at = moments.iter().map(|moment| (*moment, Vec::new()));
        let live_at = live_at.collect();
        let mut moments: Vec<(u64, usize)> = moments.iter().copied().zip(0..).collect();
        moments.sort_unstable_by(|a, b| b.cmp(a));
        let last = |passes: &crate::repeats::Loop| passes.starts.last().map(|last| last.ticket);
        let ends = found.all.iter().zip(0..);
        let mut ends: Vec<(u64, usize)> = ends
            .filter_map(|(one, number)| Some((last(&one.passes)?, number)))
            .collect();
        ends.sort_unstable_by(|a, b| b.cmp(a));
        let main = found.main().and_then(|main| found.all.get(main));
        let starts = main.map(|main| main.passes.starts.iter().map(|start| start.ticket));
        let mut starts: Vec<u64> = starts.into_iter().flatten().collect();
        starts.reverse();
        Follow {
            found,
            walker: Walker::new(recording, focus),
            live_at,
            moments,
            ends,
            sizes: FxHashMap::default(),
            notes: Notes {
                journal: watched.map(Journal::around),
                starts,
                groups: Groups::new(recording),
                series: Series::new(found.all.iter().map(|one| &one.passes)),
                segments: (focus.layer == Layer::Device).then(Segments::default),
                now: 0,
                unseen: Unseen::default(),
                highest: Highest::default(),
            },
        }
    }

    fn feed(&mut self, record: &Record) {
        while let Some((_, place)) = self.moments.pop_if(|(ticket, _)| *ticket <= record.ticket) {
            self.look(place);
        }
        while let Some((_, number)) = self.ends.pop_if(|(ticket, _)| *ticket <= record.ticket) {
            self.count_sizes(number);
        }
        self.notes.at(record);
        self.walker.feed(record, &mut self.notes);
    }

    fn look(&mut self, place: usize) {
        if let Some((_, live)) = self.live_at.get_mut(place) {
            *live = in_order(self.walker.live().clone());
        }
    }

    /// Begins the last pass of a loop: counts its sizes.
    fn count_sizes(&mut self, number: usize) {
        let of = self.sizes.entry(number).or_default();
        let starts = self.found.all.get(number).map(|one| &one.passes.starts[..]);
        let starts = starts.unwrap_or_default();
        for block in self.walker.live().values() {
            let pass = starts.partition_point(|start| start.ticket <= block.ticket);
            let sizes = of.entry(self.notes.groups.of(block)).or_default();
            let (first, again) = sizes.0.entry(block.size).or_insert((pass, false));
            *again |= *first != pass;
        }
    }

    /// Ends the pass and returns its results.
    pub fn finish(mut self) -> Followed {
        self.walker.finish(&mut self.notes);
        while let Some((_, place)) = self.moments.pop() {
            self.look(place);
        }
        let (notes, found) = (self.notes, self.found);
        let levels = found.all.iter().enumerate().map(|(number, _)| {
            let of = self.sizes.get(&number);
            let sizes = |group: &Group| {
                let sizes = of.and_then(|of| of.get(group));
                sizes.map_or((0, 0), Sizes::counts)
            };
            Level {
                number,
                growth: Growth::of(
                    notes.series.levels(number),
                    notes.series.volumes(number),
                    &sizes,
                ),
            }
        });
        let mut levels: Vec<Level<Group>> = levels.collect();
        let main = found.main();
        let steady = main
            .and_then(|main| levels.get(main))
            .map(|level| level.growth.clone());
        levels.retain(|level| !level.growth.grown.is_empty());
        let passes: Vec<_> = found.all.iter().map(|one| one.passes.clone()).collect();
        let chosen = choose(&passes, levels, found.last);
        let shown = chosen.as_ref().map(|level| level.number).or(main);
        let mut at_starts = shown.map_or(Vec::new(), |number| notes.series.totals(number).to_vec());
        let starts = shown
            .and_then(|number| passes.get(number))
            .map(|one| &one.starts[..]);
        let starts = starts.unwrap_or_default();
        notes
            .unseen
            .add_to(&mut at_starts, |number| Some(starts.get(number)?.ticket));
        // Blocks of before the recording come first: they are the oldest.
        let with_unseen = |(ticket, live): (u64, Vec<Block>)| {
            let unseen: Vec<Block> = notes.unseen.live_at(ticket).collect();
            [unseen, live].concat()
        };
        let growth =
            chosen.and_then(|level| Some((found.iterations_of(level.number)?, level.growth)));
        let unseen = notes.unseen.live_at(0);
        Followed {
            iterations: found.iterations(),
            steady: steady.filter(|_| growth.is_none()),
            growth,
            levels: at_starts,
            stacks: notes.groups.stacks.clone(),
            live_at: self.live_at.into_iter().map(with_unseen).collect(),
            journal: notes.journal,
            highest: notes.highest,
            unseen: unseen.fold(0, |sum, block| block.size.saturating_add(sum)),
            inside: found.inside.clone(),
        }
    }
}

impl Followed {
    /// Finds the loops of a run, unless iterations are given, and follows the blocks of a focus
    /// through them. It takes two passes over the events.
    pub fn of(recording: &dyn Recording, focus: Focus, given: Option<&Given>) -> Followed {
        let found = Found::of(recording, focus, given);
        let mut follow = Follow::new(recording, focus, &found, &[], None);
        read(recording, &mut [&mut follow]);
        follow.finish()
    }
}

impl Reader for Follow<'_> {
    fn read(&mut self, records: &[Record]) {
        records.iter().for_each(|record| self.feed(record));
    }
}

/// Finds the group of a block.
struct Groups<'a> {
    recording: &'a dyn Recording,
    numbers: FxHashMap<u32, u64>,
    stacks: FxHashMap<Group, u32>,
}

impl Groups<'_> {
    fn new(recording: &dyn Recording) -> Groups<'_> {
        Groups {
            recording,
            numbers: FxHashMap::default(),
            stacks: FxHashMap::default(),
        }
    }

    fn of(&mut self, block: &Block) -> Group {
        let number = self
            .numbers
            .entry(block.stack)
            .or_insert_with(|| match block.stack {
                0 => 0,
                stack => self.recording.way(stack).number(),
            });
        let group = match *number {
            0 => (0, block.size),
            number => (number, 0),
        };
        self.stacks.entry(group).or_insert(block.stack);
        group
    }
}

/// Blocks of device memory that hold no tensor, as far as is known.
#[derive(Debug, Default)]
struct Segments {
    plain: BTreeMap<u64, Block>,
    /// Addresses of blocks from which a framework cuts its tensors.
    cut: FxHashSet<u64>,
    /// True once there are tensors: physical memory, whose handle is no address, is then theirs.
    has_tensors: bool,
}

impl Segments {
    /// Returns true if a new block counts.
    fn counts(&mut self, block: &Block) -> bool {
        self.cut.remove(&block.address);
        let is_physical = block.class == Class::Vmm;
        if is_physical && self.has_tensors {
            self.cut.insert(block.address);
            return false;
        }
        if !is_physical {
            self.plain.insert(block.address, *block);
        }
        true
    }

    /// Returns the block around a tensor's address, unless tensors are already known to be cut from
    /// it.
    fn holding(&mut self, address: u64) -> Option<Block> {
        self.has_tensors = true;
        let (_, block) = self.plain.range(..=address).next_back()?;
        let is_in = address - block.address < block.size.max(1);
        let block = is_in.then_some(*block)?;
        self.plain.remove(&block.address);
        self.cut.insert(block.address);
        Some(block)
    }
}

/// Notes that the walk over blocks fills.
struct Notes<'a> {
    /// Beginnings of iterations to come; the first one last.
    starts: Vec<u64>,
    groups: Groups<'a>,
    series: Series<Group>,
    segments: Option<Segments>,
    now: u64,
    unseen: Unseen,
    journal: Option<Journal>,
    highest: Highest,
}

impl Notes<'_> {
    fn at(&mut self, record: &Record) {
        while self
            .starts
            .pop_if(|start| *start <= record.ticket)
            .is_some()
        {
            if let Some(journal) = &mut self.journal {
                journal.begin(record.ticket);
            }
        }
        self.series.at(record.ticket);
        let event: &Event = &record.event;
        let segments = self
            .segments
            .as_mut()
            .filter(|_| event.kind == Kind::TensorAlloc);
        if let Some(block) = segments.and_then(|all| all.holding(event.address)) {
            // Its tensors are counted instead of it.
            let group = self.groups.of(&block);
            self.series.freed(group, block.size);
        }
    }
}

impl Visitor for Notes<'_> {
    fn event(&mut self, record: &Record) {
        if let Some(journal) = &mut self.journal {
            journal.event(record);
        }
    }

    fn allocated(&mut self, block: &Block) {
        self.now = self.now.saturating_add(block.size);
        self.highest.allocated(block.size, self.now);
        if self
            .segments
            .as_mut()
            .is_none_or(|segments| segments.counts(block))
        {
            let group = self.groups.of(block);
            self.series.allocated(group, block.size);
        }
        if let Some(journal) = self.journal.as_mut().filter(|_| block.ticket > 0) {
            journal.note(block.ticket, block.thread, What::Allocated(block.stack));
        }
    }

    fn freed(&mut self, block: &Block, at: &Record) {
        self.now = self.now.saturating_sub(block.size);
        let is_counted = self.segments.as_mut().is_none_or(|segments| {
            segments.plain.remove(&block.address);
            !segments.cut.remove(&block.address)
        });
        if is_counted {
            let group = self.groups.of(block);
            self.series.freed(group, block.size);
        }
        if let Some(journal) = &mut self.journal {
            journal.note(at.ticket, at.event.thread, What::Freed(block.address));
        }
    }

    fn freed_unseen(&mut self, block: &Block, at: &Record) {
        self.unseen.ended(block, at);
    }

    fn never_freed(&mut self, rest: &Block) {
        self.unseen.never_ended(rest);
    }
}
