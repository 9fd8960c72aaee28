//! Memory at the peak: its bytes, the stacks that held it, and its composition.

use std::fmt::{Result, Write};

use crate::cut::shortened;
use crate::ledger::MADE_BEFORE;
use crate::output::escape::shown;
use crate::output::holder::holder_labels;
use crate::output::style::{self, Style, marked};
use crate::output::units::{bytes, count, percent, span};
use crate::peak::parts_in_words;
use crate::report::build::HeldAtPeak;
use crate::report::figures::{DeviceFigures, Gauge, TensorFigures};

/// Letters of a name at least, however narrow the terminal is.
const NAME: usize = 24;

/// From what was asked for down to what the driver says is in use, each with how much more it is than the one
/// above.
pub fn memory(device: &DeviceFigures, several: bool, f: &mut String) -> Result {
    let title = match device.device {
        Some(ordinal) if several => format!("Memory of device {ordinal}"),
        None if several => "Memory of no known device".to_string(),
        _ => "Memory".to_string(),
    };
    let heading = format!(
        "{title:<26} {:>12} {:>12} {:>12} {:>12}",
        "peak", "more", "at", "at the end"
    );
    writeln!(f, "\n{}", marked(Style::Heading, &heading))?;
    let mut above: Option<u64> = None;
    let mut line = |name: &str, peak: u64, at: Option<u64>, end: u64, f: &mut String| {
        // What lies below may have been looked at at other times: then it says nothing of this.
        let more = above.and_then(|above| peak.checked_sub(above));
        let more = more.map_or(String::new(), |more| format!("+{}", bytes(more)));
        above = Some(peak);
        let at = at.map_or("-".to_string(), span);
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
    for (name, gauge) in [
        ("requested", Some(&device.requested)),
        ("allocated", Some(&device.allocated)),
        ("reserved", Some(&device.reserved)),
        ("in use, says the driver", device.in_use.as_ref()),
    ] {
        if let Some((peak, at, end)) = gauge.map(of_gauge) {
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
pub fn held(peak: &HeldAtPeak, several: bool, f: &mut String) -> Result {
    let mut title = format!("Held at the peak, {} of {}", bytes(peak.bytes), peak.of);
    if let Some(device) = peak.device.filter(|_| several) {
        title.push_str(&format!(" on device {device}"));
    }
    if let Some(iteration) = peak.iteration {
        title.push_str(&format!(", in iteration {iteration}"));
    }
    writeln!(f, "\n{}", marked(Style::Heading, &title))?;
    if let Some(parts) = &peak.composition {
        writeln!(f, "  {}", parts_in_words(parts, peak.bytes))?;
    }
    let mut line = |held: u64, blocks: &str, since: &str, who: &str| {
        let share = percent(held as f64, peak.bytes as f64);
        let who = shortened(who, style::row().saturating_sub(50).max(NAME));
        writeln!(
            f,
            "{:>14} {share:>8} {blocks:>8} {since:>12}  {who}",
            bytes(held)
        )
    };
    for (holder, name) in peak.holders.iter().zip(holder_labels(&peak.holders)) {
        let blocks = format!("× {}", count(holder.blocks));
        let since = holder.oldest_ns.map(span).unwrap_or_default();
        line(holder.bytes, &blocks, &since, &shown(&name))?;
    }
    let (others, number) = peak.others;
    if number > 0 {
        line(others, "", "", &format!("{} others", count(number as u64)))?;
    }
    if peak.unknown > 0 {
        line(peak.unknown, "", "", MADE_BEFORE)?;
    }
    Ok(())
}
