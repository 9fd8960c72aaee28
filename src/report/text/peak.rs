//! Memory at the peak: its bytes, the stacks that held it, and its composition.

use std::fmt::{Result, Write};

use crate::cut::shortened;
use crate::ledger::MADE_BEFORE;
use crate::output::escape::shown;
use crate::output::holder::holder_labels;
use crate::output::style::{self, Style, marked};
use crate::output::units::{bytes, count, percent, span};
use crate::peak::{others as others_in_words, parts_in_words};
use crate::report::build::HeldAtPeak;
use crate::report::figures::{DeviceFigures, Gauge, TensorFigures};
use crate::report::text::findings::paragraph;

/// Letters of a name at least, however narrow the terminal is.
const NAME: usize = 24;

/// From what was asked for down to what the driver says is in use, each with how much more it is than the one
/// above.
pub fn memory(
    device: &DeviceFigures,
    several: bool,
    is_one_moment: bool,
    f: &mut String,
) -> Result {
    let title = match device.device {
        Some(ordinal) if several => format!("Memory of gpu {ordinal}"),
        None if several => "Memory of no known device".to_string(),
        _ => "Memory".to_string(),
    };
    let heading = format!(
        "{title:<26} {:>12} {:>12} {:>12} {:>12}",
        "peak", "than above", "at", "at the end"
    );
    writeln!(f, "\n{}", marked(Style::Heading, &heading))?;
    let mut above: Option<u64> = None;
    let mut line = |name: &str, peak: u64, at: Option<u64>, end: u64, f: &mut String| {
        // What lies below may have been looked at at other times: then it says nothing of this.
        let more = above.and_then(|above| peak.checked_sub(above));
        let more = more.map_or(String::new(), |more| format!("+{}", bytes(more)));
        above = Some(peak);
        let at = at.filter(|_| !is_one_moment).map_or("-".to_string(), span);
        writeln!(
            f,
            "  {name:<24} {:>12} {more:>12} {at:>12} {:>12}",
            bytes(peak),
            bytes(end)
        )
    };
    let of_gauge = |gauge: &Gauge| (gauge.peak, gauge.peak_ns, gauge.end);
    if let Some(TensorFigures {
        tensors,
        allocated_peak,
        allocated_end,
        reserved_peak,
        reserved_end,
        ..
    }) = &device.tensors
    {
        line("tensors", tensors.peak, tensors.peak_ns, tensors.end, f)?;
        // Where no framework says what it has, there are only its tensors.
        if *reserved_peak > 0 {
            line(
                "framework allocated",
                *allocated_peak,
                None,
                *allocated_end,
                f,
            )?;
            line("framework reserved", *reserved_peak, None, *reserved_end, f)?;
        }
    }
    let has_others = device.tensors.is_some() || device.requested.peak > 0;
    // A snapshot has its framework's segments only: the same sum once more.
    let is_said = |peak: u64| {
        device
            .tensors
            .as_ref()
            .is_some_and(|one| one.reserved_peak == peak)
    };
    for (name, gauge) in [
        ("requested", Some(&device.requested)),
        ("allocated", Some(&device.allocated)),
        ("reserved", Some(&device.reserved)),
        ("used by all processes", device.in_use.as_ref()),
    ] {
        // A snapshot has a framework's memory only.
        let is_known = |of: &(u64, _, _)| of.0 > 0 || device.tensors.is_none();
        if let Some((peak, at, end)) = gauge.map(of_gauge).filter(is_known) {
            // Of such a sum the recording says nothing.
            if (peak == 0 && has_others) || (device.requested.peak == 0 && is_said(peak)) {
                continue;
            }
            line(name, peak, at, end, f)?;
        }
    }
    if let Some(utilization) = device.utilization {
        let share = percent(utilization, 1.0);
        writeln!(
            f,
            "  {:<24} {share:>12}   peak requested / peak reserved",
            "utilization"
        )?;
    }
    Ok(())
}

/// The stacks that held memory at the peak.
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

/// Letters that are left of a function before the frame that tells it from others.
const LEAST: usize = 24;

/// A label cut to a number of letters: the function is cut before the frame by which it differs from others.
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
