//! Running processes and their memory, one a line.

use serde::Serialize;

use crate::cut::shortened;
use crate::device_memory::{DeviceMemory, table as memory_table};
use crate::output::escape::shown;
use crate::output::holder::Holder;
use crate::output::table::{Align, Table};
use crate::output::units::{bytes, count, percent};
use crate::shared_limit::SharedLimit;

/// A process, as `gpushim top` shows it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Row {
    /// Path of its trace.
    pub trace: String,
    /// Its id, as far as it is known.
    pub pid: Option<u32>,
    /// The program.
    pub program: String,
    /// Its rank in a job.
    pub rank: Option<String>,
    /// Whether it runs still.
    pub runs: bool,
    /// The GPUs that it uses: their ordinals.
    pub gpus: Vec<u8>,
    /// Bytes that are live.
    pub allocated: u64,
    /// Bytes held from the driver.
    pub reserved: u64,
    /// The part of its GPUs' memory that it holds, from 0 to 1; null where their size is not known.
    pub share: Option<f64>,
    /// The peak of live memory, bytes.
    pub peak: u64,
    /// Bytes a minute by which the floor of live memory rises, or falls; null in the first seconds.
    pub growth_per_minute: Option<i64>,
    /// Blocks allocated in a second, since it was looked at before.
    pub rate: f64,
    /// Requests that could not be met.
    pub out_of_memory: u64,
    /// Live bytes in equal intervals of time, the newest last.
    pub history: Vec<u64>,
    /// The stack that holds most.
    pub holders: Vec<Holder>,
    /// The memory of its devices, by owner.
    pub memory: Vec<DeviceMemory>,
    /// The limit that it shares with other processes.
    pub shared_limit: Option<SharedLimit>,
}

/// Characters of a history.
const HISTORY: usize = 16;
/// Characters of a program's name.
const PROGRAM: usize = 28;

impl Row {
    /// The cells of the line, in the order of [`HEADINGS`].
    pub fn cells(&self) -> [String; 12] {
        let pid = self.pid.map_or("-".to_string(), |pid| pid.to_string());
        let program = match &self.rank {
            Some(rank) => format!("[{rank}] {}", self.program),
            None => self.program.clone(),
        };
        let program = shown(&shortened(&program, PROGRAM));
        [
            pid,
            program,
            gpus(&self.gpus),
            bytes(self.allocated),
            bytes(self.reserved),
            self.share
                .map_or("-".to_string(), |share| percent(share, 1.0)),
            bytes(self.peak),
            self.growth_per_minute.map_or("-".to_string(), signed),
            if self.runs {
                count(self.rate.round() as u64)
            } else {
                "ended".to_string()
            },
            count(self.out_of_memory),
            curve(&self.history, HISTORY, 1).concat(),
            shown(&self.holders.first().map_or(String::new(), |holder| {
                holder.who.function_or("no stack recorded")
            })),
        ]
    }
}

/// Ordinals of devices: `0`, `0,1`, `0-7`.
fn gpus(ordinals: &[u8]) -> String {
    match ordinals {
        [] => "-".to_string(),
        [first, .., last] if is_gapless(ordinals) => format!("{first}-{last}"),
        _ => {
            let ordinals: Vec<_> = ordinals.iter().map(u8::to_string).collect();
            ordinals.join(",")
        }
    }
}

/// True if the ordinals are three or more and consecutive.
fn is_gapless(ordinals: &[u8]) -> bool {
    let is_next = |pair: &[u8]| matches!(pair, [one, next] if one.checked_add(1) == Some(*next));
    ordinals.len() > 2 && ordinals.windows(2).all(is_next)
}

/// Bytes with their sign. Less than a KiB is shown as nothing.
fn signed(change: i64) -> String {
    let size = change.unsigned_abs();
    match change {
        _ if size < 1024 => "0 B".to_string(),
        1.. => format!("+{}", bytes(size)),
        _ => format!("-{}", bytes(size)),
    }
}

/// The headings of the lines.
const HEADINGS: [(&str, Align); 12] = [
    ("pid", Align::Right),
    ("program", Align::Left),
    ("gpu", Align::Left),
    ("allocated", Align::Right),
    ("reserved", Align::Right),
    ("of gpu", Align::Right),
    ("peak", Align::Right),
    ("growth/min", Align::Right),
    ("allocs/s", Align::Right),
    ("OOM", Align::Right),
    ("history", Align::Left),
    ("most is held by", Align::Left),
];

/// The processes, one a line.
pub fn table(rows: &[Row]) -> Table {
    let mut table = Table::new(HEADINGS);
    rows.iter().for_each(|row| table.row(row.cells()));
    table
}

/// The processes as text. For a single process, the composition of its memory follows.
pub fn text(rows: &[Row]) -> String {
    let mut text = table(rows).to_string();
    if let [row] = rows {
        for memory in &row.memory {
            text.push('\n');
            text.push_str(&memory_table(memory, row.memory.len() > 1, false));
        }
    }
    for limit in shared_limits(rows) {
        text.push('\n');
        text.push_str(&limit.text());
    }
    text
}

/// The limits that the processes share, each once.
pub fn shared_limits(rows: &[Row]) -> Vec<&SharedLimit> {
    let mut limits: Vec<&SharedLimit> = Vec::new();
    for limit in rows.iter().filter_map(|row| row.shared_limit.as_ref()) {
        if limits.iter().all(|known| known.ledger != limit.ledger) {
            limits.push(limit);
        }
    }
    limits
}

/// Lines of a curve of `width` characters, the newest at the right: each is the maximum of its interval.
pub fn curve(values: &[u64], width: usize, height: usize) -> Vec<String> {
    const LEVELS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    const FULL: usize = LEVELS.len() - 1;
    let top = values.iter().max().copied().unwrap_or(0);
    if top == 0 || width == 0 {
        return vec![String::new(); height];
    }
    let each = values.len().div_ceil(width);
    // Nothing is one step high, so that the line of nothing can be seen.
    let steps = (height * FULL).saturating_sub(1) as u128;
    let level = |part: &[u64]| {
        let most = part.iter().max().copied().unwrap_or(0);
        (u128::from(most) * steps / u128::from(top)) as usize + 1
    };
    // The oldest stretch may be a shorter one.
    let mut levels: Vec<usize> = values.rchunks(each.max(1)).map(level).collect();
    levels.reverse();
    let line = |below: usize| {
        let letter = |level: &usize| LEVELS.get(level.saturating_sub(below * FULL));
        let letters = levels.iter().map(|level| letter(level).unwrap_or(&'█'));
        letters.collect()
    };
    (0..height).rev().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves() {
        let spark = |values: &[u64], width| curve(values, width, 1).concat();
        assert_eq!(spark(&[], 8), "");
        assert_eq!(spark(&[0, 0], 8), "");
        assert_eq!(spark(&[0, 7, 14], 8), "▁▄█");
        assert_eq!(spark(&[1; 100], 4), "████");
        // 5 values in 2 characters: the newest 3 are one character.
        assert_eq!(spark(&[0, 0, 0, 9, 0], 2), "▁█");
        assert_eq!(spark(&[u64::MAX, 0], 8), "█▁");
        assert_eq!(curve(&[0, 4, 8], 8, 2), ["  █", "▁██"]);
        assert_eq!(curve(&[0, 0], 8, 2), ["", ""]);
        assert!(curve(&[1], 8, 0).is_empty());
    }

    #[test]
    fn a_line_of_a_process() {
        let row = Row {
            shared_limit: None,
            trace: "a.trace".into(),
            pid: Some(77),
            program: "python train.py --with many --more options".into(),
            rank: Some("3".into()),
            runs: true,
            gpus: vec![0, 1],
            allocated: 3 << 20,
            reserved: 4 << 20,
            share: Some(0.25),
            peak: 5 << 20,
            growth_per_minute: Some(1 << 20),
            rate: 1234.4,
            out_of_memory: 1,
            history: vec![1, 2],
            holders: Vec::new(),
            memory: Vec::new(),
        };
        assert_eq!(
            text(&[row]),
            "pid  program                        gpu  allocated  reserved  of gpu     peak  growth/min  allocs/s  OOM  history  most is held by\n\
             \u{20}77  [3] python train.py --with m…  0,1    3.0 MiB   4.0 MiB  25.0 %  5.0 MiB    +1.0 MiB     1,234    1  ▄█\n"
        );
    }

    #[test]
    fn devices_and_changes() {
        assert_eq!(gpus(&[]), "-");
        assert_eq!(gpus(&[3]), "3");
        assert_eq!(gpus(&[0, 1, 2, 3]), "0-3");
        assert_eq!(gpus(&[0, 2, 3]), "0,2,3");
        assert_eq!(signed(-3 << 20), "-3.0 MiB");
        assert_eq!(signed(1000), "0 B");
        assert_eq!(signed(i64::MIN), "-8.0 EiB");
    }
}
