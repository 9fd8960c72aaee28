//! Text of the table of a device's memory.

use std::fmt::Write;

use super::find::DeviceMemory;
use super::rows::{MemoryPart, MemoryRow};
use super::spare::Spare;
use crate::output::style::{Style, marked};
use crate::output::units::{bytes, percent, span};
use crate::output::wrap::paragraph;
use crate::output::{escape::shown, style};

/// Formats the table of one moment. `several` is true if there are tables of other devices.
/// `one_moment` is true if the recording holds one moment only.
pub fn table(memory: &DeviceMemory, several: bool, one_moment: bool) -> String {
    written(memory, None, several, one_moment)
}

/// Formats the table of two moments: the peak and the end.
pub fn beside(
    at_peak: &DeviceMemory,
    at_end: &DeviceMemory,
    several: bool,
    one_moment: bool,
) -> String {
    written(
        at_peak,
        Some(at_end).filter(|_| !one_moment),
        several,
        one_moment,
    )
}

/// Letters of a figure with its space.
const FIGURE: usize = 13;

fn written(
    at: &DeviceMemory,
    end: Option<&DeviceMemory>,
    several: bool,
    one_moment: bool,
) -> String {
    let mut text = String::new();
    let of = match at.device {
        Some(ordinal) if several => format!("Memory of gpu {ordinal}"),
        None if several => "Memory of no known device".to_string(),
        _ => "Memory".to_string(),
    };
    let when = match one_moment {
        true => "then".to_string(),
        false => format!("at {}", span(at.ns)),
    };
    let mut heading = format!("{when:>FIGURE$} {:>8}", "");
    if end.is_some() {
        heading.push_str(&format!("{:>FIGURE$}", "at the end"));
    }
    heading.push_str(&format!("  {of}"));
    let _ = writeln!(text, "{}", marked(Style::Heading, &heading));
    let mut line = |then: Option<u64>, share: Option<u64>, last: Option<u64>, name: &str| {
        let figure = |sum: Option<u64>| sum.map_or("-".to_string(), bytes);
        let share = then.zip(share).map_or(String::new(), |(then, whole)| {
            percent(then as f64, whole as f64)
        });
        let mut row = format!("{:>FIGURE$} {share:>8}", figure(then));
        if end.is_some() {
            row.push_str(&format!("{:>FIGURE$}", figure(last)));
        }
        row.push_str("  ");
        match style::columns() {
            Some(columns) if columns > row.len() + FIGURE => {
                text.push_str(&paragraph(&row, name, columns))
            }
            _ => {
                let _ = writeln!(text, "{row}{name}");
            }
        }
    };
    let rows = |of: &DeviceMemory| of.rows.clone();
    let mut all: Vec<(MemoryRow, Option<u64>, Option<u64>)> = Vec::new();
    for row in rows(at) {
        let then = row.bytes;
        all.push((row, Some(then), None));
    }
    for row in end.map(rows).unwrap_or_default() {
        match all.iter_mut().find(|(known, ..)| is_same(known, &row)) {
            Some((_, _, last)) => *last = Some(row.bytes),
            None => {
                let bytes = row.bytes;
                all.push((row, None, Some(bytes)));
            }
        }
    }
    // Rows of each moment follow this order.
    all.sort_by_key(|(row, then, last)| (row.part.place(), std::cmp::Reverse(then.or(*last))));
    for (row, then, last) in &all {
        line(*then, Some(at.used), *last, &shown(&label(row)));
    }
    let last = |of: fn(&DeviceMemory) -> u64| end.map(of);
    if at.others_told {
        line(
            Some(at.by_process),
            Some(at.used),
            last(|end| end.by_process),
            "used by this process",
        );
    }
    let of_device = at
        .total
        .map_or(String::new(), |total| format!(", of {}", bytes(total)));
    let whose = match (at.driver_told, at.others_told) {
        (false, _) => "recorded: the driver was not asked what else is used".to_string(),
        (true, false) => format!("used by this process and others{of_device}"),
        (true, true) => format!("used by all processes{of_device}"),
    };
    line(Some(at.used), None, last(|end| end.used), &whose);
    text
}

/// True if two rows of two moments are of the same memory.
fn is_same(one: &MemoryRow, other: &MemoryRow) -> bool {
    let place = |row: &MemoryRow| (row.part, row.owner.clone(), row.what.clone(), row.number);
    place(one) == place(other) && one.made_at == other.made_at
}

/// Formats a row: `NCCL: communicator of 8 ranks (2), made at main train.py:12`.
fn label(row: &MemoryRow) -> String {
    let mut text = row.owner.clone();
    if !row.what.is_empty() {
        text.push_str(&format!(": {}", row.what));
    }
    if let Some(number) = row.number {
        text.push_str(&format!(" ({number})"));
    }
    if let Some(made) = &row.made_at {
        text.push_str(&format!(", made at {}", made.in_a_sentence()));
    }
    text
}

impl MemoryPart {
    /// Position in the table: frameworks, libraries and other code, the driver, the rest.
    fn place(self) -> u8 {
        match self {
            MemoryPart::Tensors => 0,
            MemoryPart::Workspaces => 1,
            MemoryPart::GraphPools => 2,
            MemoryPart::Cache => 3,
            MemoryPart::Communicator | MemoryPart::Library | MemoryPart::Code => 4,
            MemoryPart::GraphNodes | MemoryPart::Graphs => 5,
            MemoryPart::NotRecorded => 6,
            MemoryPart::Pool => 7,
            MemoryPart::Modules => 8,
            MemoryPart::Contexts => 9,
            MemoryPart::Rest => 10,
            MemoryPart::OtherProcesses => 11,
        }
    }
}

impl Spare {
    /// Formats the spare memory as a sentence.
    pub fn sentence(&self) -> String {
        let of = self.made_at.as_ref().map_or(String::new(), |made| {
            format!(" of `{}`", made.in_a_sentence())
        });
        format!(
            "the cache{of}, {} on gpu {}, could be given {} more: so much was free at every moment that the driver was asked, \
             with {} left for the driver",
            bytes(self.cache),
            self.device,
            bytes(self.bytes),
            bytes(self.margin),
        )
    }
}
