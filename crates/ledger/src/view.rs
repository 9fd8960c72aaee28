//! A ledger as readers see it.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use crate::error::Error;
use crate::file::Shared;
use crate::layout::{self, DEVICES, Slot};
use crate::member::owner_of;

/// A process's bytes of one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Number of the process's slot.
    pub slot: usize,
    /// Process id, in the process's own namespace.
    pub pid: u32,
    /// Rank of the process in its job.
    pub rank: Option<u32>,
    /// First 64 bytes of its command line, without folders.
    pub name: String,
    /// Limit in bytes under which the process joined.
    pub limit: u64,
    /// The device, as `cuDeviceGetUuid` names it.
    pub device: [u8; 16],
    /// Bytes that the process holds.
    pub held: u64,
    /// Bytes that other processes must leave to it.
    pub guaranteed: u64,
}

/// Processes of a ledger, without those that have ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// File by which the processes share the limit.
    pub path: PathBuf,
    /// Processes by device, the largest first.
    pub entries: Vec<Entry>,
}

impl View {
    /// Reads the ledger at a path. Nothing is changed in it.
    ///
    /// # Errors
    /// There is none, or it is damaged or of another version; completes "failed to …".
    pub fn read(path: &Path) -> Result<View, Error> {
        let shared = Shared::open_existing(path)?;
        Ok(View {
            path: path.to_path_buf(),
            entries: View::entries(&shared, None),
        })
    }

    pub(crate) fn entries(shared: &Shared, device: Option<usize>) -> Vec<Entry> {
        let mut entries = Vec::new();
        for (number, slot) in shared.used().iter().enumerate() {
            let Some(process) = owner_of(slot) else {
                continue;
            };
            let has_ended = process.has_ended();
            if has_ended.unwrap_or_else(|| !shared.is_locked(number)) {
                continue;
            }
            let devices = (0..DEVICES).filter(|at| device.is_none_or(|wanted| wanted == *at));
            entries.extend(devices.filter_map(|at| entry(shared, (number, slot), at, process.pid)));
        }
        entries.sort_by_key(|entry| (entry.device, std::cmp::Reverse(entry.held)));
        entries
    }
}

fn entry(shared: &Shared, (number, slot): (usize, &Slot), at: usize, pid: u32) -> Option<Entry> {
    let part = slot.parts.get(at)?;
    let device = layout::load(shared.content().head.devices.get(at)?);
    let held = part.held.load(Ordering::SeqCst);
    let guaranteed = part.guaranteed.load(Ordering::SeqCst);
    (held > 0 || guaranteed > 0).then(|| Entry {
        slot: number,
        pid,
        rank: slot
            .rank
            .load(Ordering::Relaxed)
            .checked_sub(1)
            .map(|rank| rank as u32),
        name: layout::load_text(&slot.name),
        limit: slot.limit.load(Ordering::Relaxed),
        device: layout::uuid_of(device),
        held,
        guaranteed,
    })
}
