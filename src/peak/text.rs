//! The stacks that held memory at a moment, as text.

use std::fmt;

use serde::Serialize;

use super::composition::{Part, composition};
use super::find::Peak;
use super::lower::to_lower;
use crate::device_memory::{DeviceMemory, MemorySums, When, table as memory_table};
use crate::ledger::{Focus, Moment, lost_peak};
use crate::loops::{Follow, Found};
use crate::output::answer::{Answer, Subject, lost_peak_in_words};
use crate::output::holder::{Holder, holder_labels, merged};
use crate::output::owned;
use crate::output::table::{Align, Table, rest};
use crate::output::units::{bytes, count, percent, span};
use crate::recording::{Names, Owned, Recording, read};

/// Answer of `gpushim peak`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PeakReport {
    /// The recording and the memory that was examined.
    #[serde(flatten)]
    pub subject: Subject,
    /// When, ns since the start.
    pub ns: u64,
    /// In which iteration, from 0.
    pub iteration: Option<usize>,
    /// True if most was live then.
    pub is_peak: bool,
    /// Most live bytes of the whole run, if before the events that are left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost_peak: Option<u64>,
    /// Bytes that were live.
    pub bytes: u64,
    /// Blocks that were.
    pub blocks: u64,
    /// The composition, as far as it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub composition: Option<Vec<Part>>,
    /// Whether that is sure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub composition_sure: Option<bool>,
    /// Advice that makes its largest part smaller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to_lower: Option<&'static str>,
    /// The stacks that held them, those with most bytes first.
    pub holders: Vec<Holder>,
    /// Who kept them, those with most bytes first, as far as that was recorded.
    pub owners: Vec<Owned>,
    /// The memory of each device then, by owner.
    pub memory: Vec<DeviceMemory>,
}

impl PeakReport {
    /// Analyses a moment of a recording.
    pub fn of(
        recording: &dyn Recording,
        focus: Focus,
        moment: Moment,
        names: &mut dyn Names,
    ) -> PeakReport {
        let peak = Peak::at(recording, focus, moment);
        let found = Found::of(recording, focus, None);
        let moments = [peak.ticket];
        let mut follow = Follow::new(recording, focus, &found, &moments, Some(peak.ticket));
        read(recording, &mut [&mut follow]);
        let found = follow.finish();
        let iterations = found.iterations.as_ref();
        let composition = found.journal.as_ref().and_then(|journal| {
            let live = found.live_at.first()?;
            composition(recording, names, iterations, journal, live)
        });
        let memory_sums = MemorySums::of(recording, When::Ticket(peak.ticket));
        let mut memory = DeviceMemory::of(&memory_sums, false, names);
        memory.retain(|one| focus.device.is_none() || one.device == focus.device);
        PeakReport {
            memory,
            subject: Subject::of(recording, focus),
            ns: peak.ns,
            iteration: iterations
                .filter(|all| all.certainty.sure)
                .and_then(|all| all.of(peak.ticket)),
            to_lower: to_lower(composition.as_ref(), peak.bytes),
            composition_sure: composition.as_ref().map(|all| all.sure),
            composition: composition.map(|all| all.parts),
            is_peak: moment == Moment::Peak,
            lost_peak: lost_peak(recording, focus, peak.bytes).filter(|_| moment == Moment::Peak),
            bytes: peak.bytes,
            blocks: peak.blocks,
            owners: peak.owners,
            holders: merged(
                (peak.holders.iter()).map(|held| Holder::of(recording, names, held, peak.bytes)),
            ),
        }
    }
}

impl Answer for PeakReport {
    const COMMAND: &'static str = "peak";

    fn is_found(&self) -> bool {
        false
    }

    fn text(&self, f: &mut fmt::Formatter<'_>, top: usize) -> fmt::Result {
        self.subject.heading(f)?;
        let one_moment = self.subject.one_moment;
        let when = match (one_moment, self.is_peak) {
            (true, _) => "Live when the snapshot was taken",
            (false, true) => "The peak",
            (false, false) => "Live",
        };
        let (held, blocks) = (bytes(self.bytes), count(self.blocks));
        write!(f, "{when}: {held} in {blocks} blocks")?;
        if !one_moment {
            write!(f, ", at {}", span(self.ns))?;
        }
        if let Some(iteration) = self.iteration {
            write!(f, ", in iteration {iteration}")?;
        }
        writeln!(f)?;
        if let Some(most) = self.lost_peak {
            writeln!(f, "{}", lost_peak_in_words(most))?;
        }
        if let Some(parts) = &self.composition {
            let words = parts_in_words(parts, self.composition_sure, self.bytes);
            writeln!(f, "{words}")?;
        }
        if let Some(to_lower) = self.to_lower {
            writeln!(f, "To lower it: {to_lower}.")?;
        }
        let mut table = Table::new([
            ("held", Align::Right),
            ("", Align::Right),
            ("blocks", Align::Right),
            ("since", Align::Right),
            ("by", Align::Left),
        ]);
        let shown = self.holders.iter().take(top);
        for (holder, label) in self.holders.iter().zip(holder_labels(shown)) {
            table.row([
                bytes(holder.bytes),
                percent(holder.share, 1.0),
                count(holder.blocks),
                (holder.oldest_ns.filter(|_| !one_moment))
                    .map(span)
                    .unwrap_or_default(),
                label,
            ]);
        }
        let hidden = self.holders.iter().skip(top);
        if let Some((bytes_left, blocks)) = rest(hidden.map(|one| (one.bytes, one.blocks))) {
            let who = others(self.holders.len().saturating_sub(top));
            table.row([
                bytes(bytes_left),
                percent(bytes_left as f64, self.bytes as f64),
                count(blocks),
                String::new(),
                who,
            ]);
        }
        if !table.is_empty() {
            write!(f, "\n{table}")?;
        }
        owned::table(f, &self.owners, self.bytes, top)?;
        for memory in &self.memory {
            write!(
                f,
                "\n{}",
                memory_table(memory, self.memory.len() > 1, one_moment)
            )?;
        }
        self.holders.first().map_or(Ok(()), |holder| holder.way(f))
    }
}

/// Returns the number of rows that are not shown, in words.
pub fn others(number: usize) -> String {
    match number {
        1 => "1 other".to_string(),
        _ => format!("{} others", count(number as u64)),
    }
}

/// Returns the uses of live memory in words, the largest first; `sure` is true if they are certain.
pub fn parts_in_words(parts: &[Part], sure: Option<bool>, whole: u64) -> String {
    let mut parts = parts.to_vec();
    parts.sort_by_key(|part| std::cmp::Reverse(part.bytes));
    let text = parts.iter().map(|part| {
        let share = percent(part.share(whole), 1.0);
        format!("{} {} ({share})", part.category.name(), bytes(part.bytes))
    });
    let probably = if sure == Some(false) { "probably " } else { "" };
    format!("{probably}{}", text.collect::<Vec<_>>().join(", "))
}
