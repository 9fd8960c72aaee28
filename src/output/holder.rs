//! A stack that holds blocks, and its call path.

use std::cmp::Reverse;
use std::collections::hash_map::Entry;
use std::fmt;

use rustc_hash::FxHashMap;
use serde::Serialize;

use super::escape::shown;
use super::units::{bytes, count};
use crate::cut;
use crate::ledger::{Held, MADE_BEFORE};
use crate::recording::{CallSite, Function, Names, Owned, Recording};

/// A stack that holds blocks.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Holder {
    /// The call site.
    #[serde(flatten)]
    pub who: CallSite,
    /// Blocks.
    pub blocks: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Bytes for each iteration, where that is asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_iteration: Option<f64>,
    /// Their part of the whole, 0 to 1.
    pub share: f64,
    /// When the oldest was allocated, ns since the start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oldest_ns: Option<u64>,
    /// The blocks were made before the recording began, and have no stack.
    pub made_before: bool,
    /// Who keeps most of them, where that was recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept_by: Option<Owned>,
}

impl Holder {
    /// The holder of these blocks; its share is that of `whole`, bytes.
    pub fn of(recording: &dyn Recording, names: &mut dyn Names, held: &Held, whole: u64) -> Holder {
        Holder {
            kept_by: kept_by(recording, held.stack),
            who: CallSite::of(names, held.stack),
            blocks: held.blocks,
            bytes: held.bytes,
            per_iteration: None,
            share: held.bytes as f64 / whole.max(1) as f64,
            // The time of allocation is not known for blocks from before the recording.
            oldest_ns: Some(held.oldest_ns).filter(|ns| *ns > 0),
            made_before: held.earlier,
        }
    }

    /// All that tells its row from others.
    pub fn look(&self) -> Look {
        let who = &self.who;
        if self.made_before || who.function.is_none() {
            return (self.made_before, Vec::new());
        }
        let frames = who.function.iter().chain(&who.frames);
        let frames = frames.map(Function::in_a_sentence);
        let operator = format!("→ {}", who.operator.as_deref().unwrap_or_default());
        let ranges = who.ranges.iter().map(|name| format!("[{name}]"));
        (false, frames.chain([operator]).chain(ranges).collect())
    }

    /// Adds blocks that belong to the same row.
    pub fn add(&mut self, other: &Holder) {
        self.blocks = self.blocks.saturating_add(other.blocks);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.share += other.share;
        self.oldest_ns = self.oldest_ns.into_iter().chain(other.oldest_ns).min();
        match (&mut self.kept_by, &other.kept_by) {
            (Some(own), Some(more)) if own.owner == more.owner => {
                own.blocks = own.blocks.saturating_add(more.blocks);
                own.bytes = own.bytes.saturating_add(more.bytes);
            }
            (own, more) => {
                let most = own.take().into_iter().chain(more.clone());
                *own = most.max_by_key(|owned| owned.bytes);
            }
        }
        if let Some(more) = other.per_iteration {
            *self.per_iteration.get_or_insert(0.0) += more;
        }
    }

    /// The function, or a label for blocks without a recorded stack.
    pub fn label(&self) -> String {
        self.who.function_or(no_stack(self.made_before))
    }

    /// Writes the call path from the allocation out to `main`, if it is known.
    ///
    /// # Errors
    /// Those of the formatter.
    pub fn way(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.who.frames.is_empty() {
            return Ok(());
        }
        let what = if self.blocks == 1 {
            "1 block".to_string()
        } else {
            format!("{} blocks", count(self.blocks))
        };
        writeln!(
            f,
            "\nAllocated here ({what}, {}), the innermost call first",
            bytes(self.bytes)
        )?;
        let frames = &self.who.frames;
        // A library may make dozens of calls between the function responsible and the allocation.
        let skipped = place(&self.who).map_or(0, |place| place.saturating_sub(INNER + OUTER));
        for (number, frame) in frames.iter().enumerate().take(WAY + skipped) {
            if skipped > 0 && number == INNER {
                writeln!(f, "  … {skipped} calls within libraries")?;
            }
            if !(INNER..INNER + skipped).contains(&number) {
                writeln!(f, "  {}", shown(&shortened(&frame.label())))?;
            }
        }
        let more = frames.len().saturating_sub(WAY + skipped);
        if more > 0 {
            writeln!(f, "  and {more} more")?;
        }
        match self.who.frames_hidden {
            0 => Ok(()),
            1 => writeln!(f, "  (without 1 call of {BELOW})"),
            hidden => writeln!(f, "  (without {hidden} calls of {BELOW})"),
        }
    }
}

/// The owner of most blocks with a stack: of more than half of their bytes with a known owner.
pub fn kept_by(recording: &dyn Recording, stack: u32) -> Option<Owned> {
    let owned = recording.owners().of_stack(recording, stack);
    let whole = owned.iter().map(|one| one.bytes).sum::<u64>();
    owned.into_iter().next().filter(|one| one.bytes > whole / 2)
}

/// Label of blocks without a stack.
pub fn no_stack(made_before: bool) -> &'static str {
    match made_before {
        true => MADE_BEFORE,
        false => "no stack recorded",
    }
}

/// Labels of holders, as [`labels`] makes them. Blocks made before the recording have a label of
/// their own.
pub fn holder_labels<'a>(holders: impl IntoIterator<Item = &'a Holder>) -> Vec<String> {
    let holders: Vec<&Holder> = holders.into_iter().collect();
    let named = labels(holders.iter().map(|holder| &holder.who), no_stack(false));
    let named = holders.iter().zip(named);
    named
        .map(|(holder, label)| match holder.made_before {
            true => MADE_BEFORE.to_string(),
            false => label,
        })
        .collect()
}

/// Rows of a table. Holders whose frames all look the same become one row, with the sums of their
/// blocks.
///
/// Rows with most bytes come first.
pub fn merged(holders: impl IntoIterator<Item = Holder>) -> Vec<Holder> {
    let mut rows: Vec<Holder> = Vec::new();
    let mut places = FxHashMap::<Look, usize>::default();
    for holder in holders {
        match places.entry(holder.look()) {
            Entry::Vacant(place) => {
                place.insert(rows.len());
                rows.push(holder);
            }
            Entry::Occupied(place) => {
                if let Some(row) = rows.get_mut(*place.get()) {
                    row.add(&holder);
                }
            }
        }
    }
    rows.sort_by_key(|row| Reverse(row.bytes));
    rows
}

/// Identity of a holder's row: its frames, the function it calls and its ranges, as they are shown.
pub type Look = (bool, Vec<String>);

/// Description of the frames that are left out of a call path.
const BELOW: &str = "allocators, runtimes and interpreters";
/// Most frames of a call path that are shown.
const WAY: usize = 30;
/// Numbers of frames before the responsible function that are shown: at the allocation, and next to
/// the function.
const INNER: usize = 3;
const OUTER: usize = 2;
/// Most characters of a frame.
const LETTERS: usize = 120;

/// Index of a call site's function among its frames.
fn place(who: &CallSite) -> Option<usize> {
    let function = who.function.as_ref()?;
    who.frames.iter().position(|frame| frame == function)
}

/// Shortens a frame to one line of a terminal.
///
/// Names with templates have hundreds of characters. Their place in the source comes last and is
/// kept.
fn shortened(line: &str) -> String {
    let (function, place) = line.rsplit_once("  ").unwrap_or((line, ""));
    match cut::to_letters(function, LETTERS) {
        Some(function) => format!("{function}…  {place}"),
        None => line.to_string(),
    }
}

/// Most frames that are added to a label.
const TIMES: usize = 8;

/// Labels of the rows of a table by function. Labels that would look the same get the frame in
/// which they differ.
///
/// `copy  train.py:12 ← Leaky.forward train.py:31` was called by `Leaky.forward`. `→` stands before
/// the callee, and a range is in brackets.
pub fn labels<'a>(sites: impl IntoIterator<Item = &'a CallSite>, otherwise: &str) -> Vec<String> {
    let sites: Vec<&CallSite> = sites.into_iter().collect();
    let mut labels: Vec<String> = sites.iter().map(|who| who.function_or(otherwise)).collect();
    let mut is_told = true;
    for _ in 0..TIMES {
        if !std::mem::replace(&mut is_told, false) {
            break;
        }
        let mut groups: Vec<(&str, Vec<usize>)> = Vec::new();
        for (row, label) in labels.iter().enumerate() {
            match groups.iter_mut().find(|(known, _)| known == label) {
                Some((_, rows)) => rows.push(row),
                None => groups.push((label, vec![row])),
            }
        }
        let groups = groups.into_iter().map(|(_, rows)| rows);
        for rows in groups.filter(|rows| rows.len() > 1).collect::<Vec<_>>() {
            let group: Vec<&CallSite> = rows
                .iter()
                .filter_map(|row| sites.get(*row).copied())
                .collect();
            for (row, difference) in rows.iter().zip(differences(&group)) {
                if let Some(label) = labels.get_mut(*row) {
                    is_told |= !difference.is_empty();
                    label.push_str(&difference);
                }
            }
        }
    }
    labels
}

/// Differences between call sites of the same function. The texts are empty if there are none.
fn differences(group: &[&CallSite]) -> Vec<String> {
    let outer = |who: &CallSite, at: usize| -> Option<Function> {
        who.frames.get(place(who)? + 1 + at).cloned()
    };
    let inner = |who: &CallSite, at: usize| -> Option<Function> {
        who.frames.get(place(who)?.checked_sub(1 + at)?).cloned()
    };
    let range = |who: &CallSite, at: usize| who.ranges.get(at).cloned();
    let arrow = |arrow: &'static str| {
        move |frame: Option<Function>| {
            frame.map_or(String::new(), |frame| {
                format!(" {arrow} {}", frame.in_a_sentence())
            })
        }
    };
    let depth = |of: fn(&CallSite) -> usize| group.iter().map(|who| of(who)).max().unwrap_or(0);
    told(group, depth(|who| who.frames.len()), outer, arrow("←"))
        .or_else(|| told(group, depth(|who| who.frames.len()), inner, arrow("→")))
        .or_else(|| {
            told(
                group,
                1,
                |who, _| who.operator.clone(),
                |name| name.map_or(String::new(), |name| format!(" → {name}")),
            )
        })
        .or_else(|| {
            let in_brackets =
                |name: Option<String>| name.map_or(String::new(), |name| format!(" [{name}]"));
            told(group, depth(|who| who.ranges.len()), range, in_brackets)
        })
        .unwrap_or_else(|| vec![String::new(); group.len()])
}

/// The first thing in which a group does not look all alike, of each; `None` if there is none.
fn told<T>(
    group: &[&CallSite],
    depth: usize,
    of: impl Fn(&CallSite, usize) -> Option<T>,
    say: impl Fn(Option<T>) -> String,
) -> Option<Vec<String>> {
    (0..depth).find_map(|at| {
        let all: Vec<String> = group.iter().map(|who| say(of(who, at))).collect();
        let differ = all.iter().any(|one| Some(one) != all.first());
        differ.then_some(all)
    })
}

#[cfg(test)]
mod tests;
