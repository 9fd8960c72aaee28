//! Limits that processes share by a ledger (`GPUSHIM_LIMIT_SCOPE`), as `top`, `metrics` and `doctor`
//! show them.

use std::path::Path;

use serde::Serialize;

use crate::output::escape::shown;
use crate::output::table::{Align, Table};
use crate::output::units::bytes;
use gpushim_ledger::{Entry, Error, View, device_name};

/// A ledger at this moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SharedLimit {
    /// File by which the processes share the limit.
    pub ledger: String,
    /// Parts of the processes, by device, the largest first.
    pub parts: Vec<Part>,
}

/// A process's part of a device.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Part {
    /// The device, as NVML names it.
    pub device: String,
    /// Id of the process, in its own namespace.
    pub pid: u32,
    /// Rank that the launcher gave it, if any.
    pub rank: Option<u32>,
    /// Its command line, shortened.
    pub program: String,
    /// Bytes that it holds now, or is asking for.
    pub held: u64,
    /// Bytes that the others leave to it.
    pub guaranteed: u64,
    /// The limit in bytes that it has for the sum.
    pub limit: u64,
}

impl SharedLimit {
    /// Reads the ledger at a path.
    ///
    /// # Errors
    /// There is none, or it is damaged; completes "failed to …".
    pub fn read(path: &Path) -> Result<SharedLimit, Error> {
        let view = View::read(path)?;
        Ok(SharedLimit {
            ledger: path.display().to_string(),
            parts: view.entries.into_iter().map(Part::of).collect(),
        })
    }

    /// Returns the devices with the bytes that all processes hold, and the largest limit of one.
    pub fn devices(&self) -> impl Iterator<Item = (&str, u64, u64)> {
        let devices = self.parts.chunk_by(|one, next| one.device == next.device);
        devices.filter_map(|parts| {
            let held = parts.iter().map(|part| part.held).sum();
            let limit = parts.iter().map(|part| part.limit).max()?;
            Some((parts.first()?.device.as_str(), held, limit))
        })
    }

    /// Formats the ledger as lines: a table of the processes for each device.
    pub fn text(&self) -> String {
        let mut text = format!("Limit shared by {}\n", shown(&self.ledger));
        for (device, held, limit) in self.devices() {
            text.push_str(&format!(
                "{device}: {} of {} held\n",
                bytes(held),
                bytes(limit)
            ));
            let mut table = Table::new([
                ("held", Align::Right),
                ("guaranteed", Align::Right),
                ("pid", Align::Right),
                ("program", Align::Left),
            ]);
            for part in self.parts.iter().filter(|part| part.device == device) {
                let program = match part.rank {
                    Some(rank) => format!("[{rank}] {}", part.program),
                    None => part.program.clone(),
                };
                table.row([
                    bytes(part.held),
                    bytes(part.guaranteed),
                    part.pid.to_string(),
                    shown(&program),
                ]);
            }
            text.push_str(&table.to_string());
        }
        text
    }
}

impl Part {
    fn of(entry: Entry) -> Part {
        Part {
            device: device_name(entry.device),
            pid: entry.pid,
            rank: entry.rank,
            program: entry.name,
            held: entry.held,
            guaranteed: entry.guaranteed,
            limit: entry.limit,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_listed_by_device() {
        let entry = |device: u8, pid, held, rank| Entry {
            slot: 0,
            pid,
            rank,
            name: format!("train.py {pid}"),
            limit: 20 << 30,
            device: [device; 16],
            held,
            guaranteed: 1 << 30,
        };
        let entries = [
            entry(0, 7, 12 << 30, Some(1)),
            entry(0, 8, 3 << 30, None),
            entry(1, 8, 1 << 30, None),
        ];
        let limit = SharedLimit {
            ledger: "/dev/shm/x".to_string(),
            parts: entries.map(Part::of).into(),
        };
        let text = limit.text();
        let lines: Vec<_> = text.lines().map(str::trim).collect();
        assert_eq!(lines[0], "Limit shared by /dev/shm/x");
        let zeros = "GPU-00000000-0000-0000-0000-000000000000";
        assert_eq!(lines[1], format!("{zeros}: 15.0 GiB of 20.0 GiB held"));
        assert!(
            lines[3].starts_with("12.0 GiB") && lines[3].ends_with("7  [1] train.py 7"),
            "{text}"
        );
        assert!(
            lines[5].starts_with("GPU-01010101-0101-") && lines[5].contains("1.0 GiB of"),
            "{text}"
        );
        assert_eq!(lines.len(), 8, "{text}");
    }
}
