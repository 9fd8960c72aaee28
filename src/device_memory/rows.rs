//! Rows of the table: their kinds, and their sums.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::recording::Function;

/// The kind of a row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum MemoryPart {
    /// Tensors of a framework, but for workspaces.
    Tensors,
    /// Tensors that a framework makes for a library to work in.
    Workspaces,
    /// Segments of a framework that pools of CUDA graphs hold.
    GraphPools,
    /// Segments of a framework, less its tensors.
    Cache,
    /// A communicator of NCCL, with its buffers.
    Communicator,
    /// Allocations of a library.
    Library,
    /// Allocations of other code.
    Code,
    /// Memory nodes of CUDA graphs.
    GraphNodes,
    /// Executable graphs of CUDA.
    Graphs,
    /// Code that was loaded by a call.
    Modules,
    /// Memory that the pool of gpushim keeps for reuse.
    Pool,
    /// Contexts, as they were made.
    Contexts,
    /// Allocations without a recorded stack.
    NotRecorded,
    /// Memory that cannot be told apart.
    Rest,
    /// Memory of other processes.
    OtherProcesses,
}

/// The memory of one owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct MemoryRow {
    /// The kind of memory it is.
    pub part: MemoryPart,
    /// The owner: a framework, a library, a file.
    pub owner: String,
    /// The purpose, for people.
    pub what: String,
    /// The function that made it, of a communicator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub made_at: Option<Function>,
    /// Its number, where the owner has several: of a communicator, in the order of their making.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub number: Option<u64>,
    /// Bytes of memory in the row.
    pub bytes: u64,
    /// Blocks; 0 of what the driver keeps for itself.
    pub blocks: u64,
}

/// Key of a row: kind, owner, purpose, number, and the stack that made it.
pub type Place = (MemoryPart, String, String, Option<u64>, u32);

/// Bytes and blocks of rows while they are summed up.
#[derive(Default)]
pub struct Rows(pub BTreeMap<Place, (u64, u64)>);

impl Rows {
    /// Adds bytes and blocks to a row.
    pub fn add(&mut self, place: Place, bytes: u64, blocks: u64) {
        let row = self.0.entry(place).or_default();
        row.0 = row.0.saturating_add(bytes);
        row.1 = row.1.saturating_add(blocks);
    }

    /// Adds bytes and blocks to a row without number and stack. Does nothing for 0 bytes.
    pub fn plain(
        &mut self,
        part: MemoryPart,
        owner: &str,
        what: &str,
        (bytes, blocks): (u64, u64),
    ) {
        if bytes > 0 {
            let place = (part, owner.to_string(), what.to_string(), None, 0);
            self.add(place, bytes, blocks);
        }
    }

    /// Takes at most `most` bytes from the rows of a kind. Returns the bytes and blocks that were
    /// taken.
    pub fn take(&mut self, part: MemoryPart, most: u64) -> (u64, u64) {
        let (mut bytes, mut blocks) = (0, 0);
        for (_, row) in self.0.iter_mut().filter(|(place, _)| place.0 == part) {
            let taken = row.0.min(most - bytes);
            row.0 -= taken;
            bytes += taken;
            if row.0 == 0 {
                blocks += std::mem::take(&mut row.1);
            }
        }
        self.0.retain(|_, row| row.0 > 0);
        (bytes, blocks)
    }
}
