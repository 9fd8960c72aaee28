//! The last request that ran out of memory in at most twelve lines, for the output of a failed run.

use std::path::Path;

use super::explain::Evidence;
use super::find::Shortage;
use super::text::{ExplainedShortage, OomReport};
use super::words;
use crate::cli::files::short;
use crate::cut::shortened;
use crate::error::Result;
use crate::ledger::Focus;
use crate::loops::Given;
use crate::output::answer::unread;
use crate::output::escape::shown;
use crate::output::holder::{Holder, merged};
use crate::output::owned;
use crate::output::units::{bytes, count, percent};
use crate::output::wrap::cut_to_lines;
use crate::recording::{self, CallSite, Function, Recording};

/// Letters of a line; the last one names a file and may be longer.
const WIDTH: usize = 90;
/// Letters before the text of a line.
const INDENT: usize = 9;
/// Letters of a function's name.
const NAME: usize = 40;
/// Number of stacks with most memory that are named.
const HOLDERS: usize = 3;
/// Number of owners that are named, if they fit one line.
const KEEPERS: usize = 2;
/// Events up to which the run is replayed: a dozen replays of more would take longer than a second.
const REPLAYED: u64 = 400_000;
/// Events up to which all are read. Of a longer run the ring is read, with the live blocks and the
/// sums of the whole.
const READ: u64 = 1_500_000;

/// The text about a request.
#[derive(Debug)]
pub(super) struct Brief {
    lines: Vec<String>,
    /// The name of the cause and the place of the request: a text with the same key is not
    /// repeated.
    pub key: String,
}

/// Opens a recording so that it is read within a second.
///
/// # Errors
/// The errors of [`recording::open`].
pub(super) fn open(path: &Path) -> Result<Box<dyn Recording>> {
    let newest = recording::open_ring(path)?;
    match newest.coverage().recorded > READ {
        true => Ok(newest),
        false => recording::open(path),
    }
}

/// Returns the sentence for a recording in which no request failed, as far as it shows.
pub(super) fn none(recording: &dyn Recording) -> String {
    let path = recording.path().display().to_string();
    let why = unread(recording).map_or(String::new(), |why| format!(" in what can be read: {why}"));
    format!(
        "{}: no request failed for lack of memory{why}.\n",
        shown(&path)
    )
}

impl Brief {
    /// Explains the last request that failed and did not succeed soon after; `None` if there is
    /// none.
    pub fn of(recording: &dyn Recording, focus: Focus, given: Option<&Given>) -> Option<Brief> {
        let last = Shortage::last(recording, focus);
        if last.is_empty() {
            return None;
        }
        let is_short = recording.coverage().readable <= REPLAYED;
        let names = &mut *recording.names();
        let replayed = usize::from(is_short);
        let report = OomReport::explained(recording, focus, given, last, replayed, names);
        let told = report.shortages.into_iter().next()?;
        let cause = words::name(told.explanation.cause());
        let asker = told.asker.as_ref().and_then(|site| place(site, 0));
        let place = asker.map_or(String::new(), |place| format!(", {place}"));
        Some(Brief {
            key: shown(&format!("{cause}{place}")),
            lines: lines(recording, &told),
        })
    }

    /// Returns the lines, each with its line feed.
    pub fn text(&self) -> String {
        let mut text = self.lines.join("\n");
        text.push('\n');
        text
    }
}

fn lines(recording: &dyn Recording, told: &ExplainedShortage) -> Vec<String> {
    let rank = recording.process().rank.filter(|rank| !rank.is_empty());
    let rank = rank.map_or(String::new(), |rank| format!("rank {rank}: "));
    let iteration = told.iteration;
    let iteration = iteration.map(|number| format!(", in iteration {number}"));
    let head = |room: usize, more: &str| {
        let asker = told.asker.as_ref().and_then(|site| place(site, room));
        let asked = words::asked(asker, &told.shortage);
        shown(&format!("gpushim: {rank}out of memory: {asked}{more}"))
    };
    // The line has the caller of the function and the iteration, if all fits.
    let iteration = iteration.as_deref().unwrap_or_default();
    let heads = [head(WIDTH, iteration), head(0, iteration), head(0, "")];
    let whole = heads.iter().find(|whole| whole.chars().count() <= WIDTH);
    let [.., shortest] = &heads;
    let mut lines = cut_to_lines(whole.unwrap_or(shortest), WIDTH, 2);
    lines.extend(labelled("cause", &told.because, 4 - lines.len()));
    let holders = merged(told.held_by.iter().cloned());
    // The owner takes the place of the last holder.
    let number = HOLDERS - usize::from(!told.owners.is_empty());
    for (index, holder) in holders.iter().take(number).enumerate() {
        let label = if index == 0 { "held" } else { "" };
        lines.extend(labelled(label, &held(holder), 1));
    }
    lines.extend(labelled("kept", &kept(told), 1));
    lines.extend(labelled("had", &had(told), 1));
    if let Some(fix) = told.advice.first() {
        lines.extend(labelled("fix", fix, 2));
    }
    lines.extend(labelled("fits", &fits(told), 1));
    lines.push(format!(
        "  more   gpushim oom {}",
        shown(&short(recording.path()))
    ));
    lines
}

/// Returns a text after its label, in at most this many lines; none of an empty text.
fn labelled(label: &str, text: &str, most: usize) -> Vec<String> {
    let label = format!("  {label:<0$}", INDENT - 2);
    let parts = match text.is_empty() {
        true => Vec::new(),
        false => cut_to_lines(&shown(text), WIDTH - INDENT, most),
    };
    let parts = parts.into_iter().enumerate();
    let line = |(index, part): (usize, String)| match index {
        0 => format!("{label}{part}"),
        _ => format!("{:INDENT$}{part}", ""),
    };
    parts.map(line).collect()
}

/// Names the owners of most live memory, in words; empty if that was not recorded.
fn kept(told: &ExplainedShortage) -> String {
    let owners = told.owners.iter().take(KEEPERS).map(|one| {
        let share = percent(one.bytes as f64, told.shortage.live as f64);
        format!(
            "{} ({share}) by {}",
            bytes(one.bytes),
            owned::row(&one.owner)
        )
    });
    let whole = |text: String, more: String| match text.is_empty() {
        true => more,
        false => format!("{text}, {more}"),
    };
    owners.fold(String::new(), |text, more| {
        let both = whole(text.clone(), more);
        match text.is_empty() || both.chars().count() <= WIDTH - INDENT {
            true => both,
            false => text,
        }
    })
}

/// Describes a stack that held memory: its bytes, its part, its blocks, its place.
fn held(holder: &Holder) -> String {
    let number = match holder.blocks {
        1 => "1 block".to_string(),
        blocks => format!("{} blocks", count(blocks)),
    };
    let share = percent(holder.share, 1.0);
    let text = format!("{} ({share}), {number}: ", bytes(holder.bytes));
    let place = place(&holder.who, WIDTH - INDENT - text.len());
    text + &place.unwrap_or_else(|| holder.label())
}

/// Describes a call site in a line: its function, and the caller if there is room for both.
fn place(site: &CallSite, room: usize) -> Option<String> {
    let named = |function: &Function| {
        let name = shortened(&function.name, NAME);
        format!("{name} {}", function.place())
            .trim_end()
            .to_string()
    };
    let function = named(site.function.as_ref()?);
    let caller = site.called_by.as_ref();
    let both = caller.map(|caller| format!("{function}, called by {}", named(caller)));
    let both = both.filter(|both| both.chars().count() <= room);
    Some(both.unwrap_or(function))
}

/// Describes the memory of the device and of the allocator at the moment.
fn had(told: &ExplainedShortage) -> String {
    let situation = &told.situation;
    let free = situation.free.map(|free| match situation.total {
        Some(total) => format!("{} of {} free", bytes(free), bytes(total)),
        None => format!("{} free", bytes(free)),
    });
    let whose = words::whose(situation.by_framework);
    let cache = situation.cache.map(|cache| {
        let (reserved, allocated) = (bytes(cache.reserved), bytes(cache.allocated));
        format!("{whose} held {reserved}, {allocated} in use")
    });
    let parts: Vec<String> = free.into_iter().chain(cache).collect();
    parts.join("; ")
}

/// Names allocators and amounts of memory that would have served it, or the reason why they are
/// unknown.
fn fits(told: &ExplainedShortage) -> String {
    let fits = &told.explanation.fits;
    if told.explanation.by == Evidence::Figures {
        // For a request that is larger than the device, there is nothing to try.
        return match (fits.untold, told.situation.too_large()) {
            (_, Some(_)) => String::new(),
            (Some(why), _) => format!("not replayed: {why}"),
            (None, _) => {
                "not replayed here, as the run is long: the command below does it".to_string()
            }
        };
    }
    let more = fits.more().map(|more| format!("with {} more", bytes(more)));
    let others = fits
        .others()
        .map(|policy| format!("under {}", policy.name()));
    let ways: Vec<String> = more.into_iter().chain(others).collect();
    ways.join(", ")
}

#[cfg(test)]
mod tests;
