//! Memory at the peak: its bytes, the stacks that held it, and its composition.

use std::fmt::{Result, Write};

use crate::cut::shortened;
use crate::device_memory::beside;
use crate::ledger::MADE_BEFORE;
use crate::output::escape::shown;
use crate::output::holder::holder_labels;
use crate::output::owned;
use crate::output::style::{self, Style, marked};
use crate::output::units::{bytes, count, percent, span};
use crate::peak::{others as others_in_words, parts_in_words};

use crate::report::build::{HeldAtPeak, MemoryOfDevice, Report};
use crate::report::text::findings::paragraph;

/// Fewest letters of a name, however narrow the terminal is.
const NAME: usize = 24;

/// Writes the memory of each device, by owner.
pub fn memory(report: &Report, f: &mut String) -> Result {
    let several = report.memory.len() > 1;
    for MemoryOfDevice {
        at_peak,
        at_end,
        spare,
    } in &report.memory
    {
        let table = beside(at_peak, at_end, several, report.is_one_moment());
        write!(f, "\n{table}")?;
        if let Some(spare) = spare {
            paragraph("  If it serves: ", &shown(&spare.sentence()), f)?;
        }
    }
    for device in &report.summary.devices {
        if let Some(utilization) = device.utilization {
            let share = percent(utilization, 1.0);
            let of = match device.device.filter(|_| several) {
                Some(ordinal) => format!(" of gpu {ordinal}"),
                None => String::new(),
            };
            let (requested, reserved) = (bytes(device.requested.peak), bytes(device.reserved.peak));
            writeln!(
                f,
                "{:>13} {share:>8}  utilization{of}: peak requested {requested} / peak reserved {reserved}",
                ""
            )?;
        }
    }
    Ok(())
}

/// Writes the stacks that held memory at the peak.
pub fn held(peak: &HeldAtPeak, several: bool, is_one_moment: bool, f: &mut String) -> Result {
    let when = if is_one_moment {
        "when the snapshot was taken"
    } else {
        "at the peak"
    };
    let mut title = format!("Held {when}, {} of {}", bytes(peak.bytes), peak.of);
    if let Some(device) = peak.device.filter(|_| several) {
        title.push_str(&format!(" of gpu {device}"));
    }
    if let Some(iteration) = peak.iteration {
        title.push_str(&format!(", in iteration {iteration}"));
    }
    writeln!(f, "\n{}", marked(Style::Heading, &title))?;
    if let Some(parts) = &peak.composition {
        writeln!(
            f,
            "  {}",
            parts_in_words(parts, peak.composition_sure, peak.bytes)
        )?;
    }
    if let Some(to_lower) = peak.to_lower {
        paragraph("  To lower it: ", to_lower, f)?;
    }
    if !peak.owners.is_empty() {
        let owners = peak.owners.iter().map(|one| {
            let share = percent(one.bytes as f64, peak.bytes as f64);
            format!("{} {} ({share})", owned::row(&one.owner), bytes(one.bytes))
        });
        let owners: Vec<String> = owners.collect();
        paragraph("  Kept by ", &shown(&owners.join(", ")), f)?;
    }
    let mut line = |held: u64, blocks: &str, since: &str, who: &str| {
        let share = percent(held as f64, peak.bytes as f64);
        let who = fitting(who, style::row().saturating_sub(50).max(NAME));
        writeln!(
            f,
            "{:>14} {share:>8} {blocks:>8} {since:>12}  {who}",
            bytes(held)
        )
    };
    for (holder, name) in peak.holders.iter().zip(holder_labels(&peak.holders)) {
        let blocks = format!("× {}", count(holder.blocks));
        let since = holder.oldest_ns.filter(|_| !is_one_moment);
        let since = since.map(span).unwrap_or_default();
        line(holder.bytes, &blocks, &since, &shown(&name))?;
    }
    let (others, number) = peak.others;
    if number > 0 {
        line(others, "", "", &others_in_words(number))?;
    }
    if peak.unknown > 0 {
        line(peak.unknown, "", "", MADE_BEFORE)?;
    }
    Ok(())
}

/// Fewest letters of a function before the frame that distinguishes it.
const LEAST: usize = 24;

/// Cuts a label to a number of letters. The function is cut before the frame that distinguishes it
/// from others.
fn fitting(label: &str, letters: usize) -> String {
    let differs = [" ← ", " → ", " ["];
    let at = differs.iter().filter_map(|mark| label.find(mark)).min();
    let (function, difference) = label.split_at(at.unwrap_or(label.len()));
    let room = letters.saturating_sub(difference.chars().count());
    if label.chars().count() <= letters || difference.is_empty() || room < LEAST {
        return shortened(label, letters);
    }
    format!(
        "{}{difference}",
        shortened(function, room.saturating_sub(1))
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_keeps_what_tells_it_from_others() {
        assert_eq!(fitting("main  a.py:1", 40), "main  a.py:1");
        let long = "torch::autograd::generated::details::div_backward(...)";
        assert_eq!(
            fitting(&format!("{long} → neg"), 40),
            "torch::autograd::generated::detai… → neg"
        );
        assert_eq!(fitting(long, 20), "torch::autograd::gen…");
        let farther = format!("{long} ← {long}");
        assert_eq!(fitting(&farther, 40), shortened(&farther, 40));
    }
}
