//! The fall that lasts, and its cause.

use std::cmp::Reverse;

use rustc_hash::FxHashMap;

use super::least;
use super::level::{Fall, Levels};
use crate::ledger::{Block, Focus, Held, Visitor, by_stack, walk};
use crate::loops::{Followed, without_numbers};
use crate::output::units::{bytes, count, span};
use crate::recording::{CallSite, Names, Recording};
use gpushim_trace::{Kind, Record};

/// The fall of live memory after which a run goes on with least.
#[derive(Debug)]
pub struct LastingFall {
    /// Its levels, and when it began.
    pub fall: Fall,
    /// A moment just before it, ns since the start.
    pub before_ns: u64,
    /// The iteration in which it began, from 0.
    iteration: Option<usize>,
    /// True if an iteration began in it.
    is_between: bool,
    /// Id of the stack of the free that freed most.
    freed_by: u32,
    /// The innermost range of that free, without numbers.
    range: Option<String>,
    /// The stack that had allocated most of the blocks.
    pub holder: Option<Held>,
}

impl LastingFall {
    /// Looks for a fall in a recording whose blocks were followed.
    pub fn of(recording: &dyn Recording, focus: Focus, followed: &Followed) -> Option<LastingFall> {
        let stretches = followed.highest.stretches().iter();
        let peak = stretches.map(|one| one.highest).max()?;
        let iterations = followed.iterations.as_ref();
        let starts = iterations.map_or(&[][..], |all| &all.starts);
        let mut levels = Levels::new(followed.unseen, least(peak), starts);
        walk(recording, focus, &mut [&mut levels]);
        let fall = levels.finish()?;
        let (from, to) = (fall.from.ticket, fall.to.ticket);
        let mut freed = Freed {
            tickets: (from, to),
            ..Freed::default()
        };
        walk(recording, focus, &mut [&mut freed]);
        let by = freed.by.into_iter();
        let by = by.max_by_key(|(by, sum)| (*sum, Reverse(*by)));
        let freed_by = by.map_or(0, |(by, _)| by);
        let range = recording.open_ranges(freed_by).into_iter().next();
        let iteration = |ticket| iterations.and_then(|all| all.of(ticket));
        Some(LastingFall {
            fall,
            before_ns: u64::midpoint(freed.before_ns, freed.first_ns),
            iteration: iteration(from),
            is_between: iteration(from) != iteration(to),
            freed_by,
            range: range.map(|name| without_numbers(&name)),
            holder: by_stack(recording, &freed.blocks).first().copied(),
        })
    }

    /// Returns it in a sentence.
    pub fn sentence(&self, names: &mut dyn Names) -> String {
        let fall = &self.fall;
        let iteration = self.iteration.map(|one| format!(", in iteration {one},"));
        let iteration = iteration.unwrap_or_default();
        let stays = match fall.stays() {
            0 => String::new(),
            lower => format!(" and stays {} lower", bytes(lower)),
        };
        let blocks = self.holder.map(|held| {
            let site = CallSite::of(names, held.stack).in_a_sentence();
            let (size, blocks) = (bytes(held.bytes), count(held.blocks));
            format!("; {size} in {blocks} blocks were of {site}")
        });
        let (at, why, blocks) = (
            span(fall.from.ns),
            self.why(names),
            blocks.unwrap_or_default(),
        );
        let (fell, to) = (bytes(fall.bytes()), bytes(fall.to.bytes));
        format!("At {at}{iteration} memory fell by {fell} to {to}{stays}: {why}{blocks}.")
    }

    fn why(&self, names: &mut dyn Names) -> String {
        let site = CallSite::of(names, self.freed_by);
        match &self.range {
            _ if self.fall.is_reset() => "a context was reset or destroyed".to_string(),
            Some(name) => format!("freed in the range `{name}`"),
            None if !site.frames.is_empty() => format!("freed by {}", site.in_a_sentence()),
            None if self.is_between => "freed between two iterations".to_string(),
            None => "freed by the program".to_string(),
        }
    }
}

/// Collects the blocks that were live when a fall began and freed in it.
#[derive(Default)]
struct Freed {
    /// The first and the last event of the fall.
    tickets: (u64, u64),
    blocks: Vec<Block>,
    /// Bytes by the stack of their free.
    by: FxHashMap<u32, u64>,
    /// Time at which the first was freed, ns since the start.
    first_ns: u64,
    /// Time of the event before that.
    before_ns: u64,
}

impl Visitor for Freed {
    fn event(&mut self, record: &Record) {
        if self.blocks.is_empty() {
            (self.before_ns, self.first_ns) = (self.first_ns, record.ns);
        }
    }

    fn freed(&mut self, block: &Block, at: &Record) {
        let (from, to) = self.tickets;
        let is_after = at.ticket > from || at.event.kind == Kind::ContextGone;
        if is_after && (from..=to).contains(&at.ticket) && block.ticket <= from {
            self.blocks.push(*block);
            let sum = self.by.entry(at.event.stack).or_default();
            *sum = sum.saturating_add(block.size);
        }
    }
}

#[cfg(test)]
mod tests;
