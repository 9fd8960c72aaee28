//! Builds the table from the sums of a device at a moment.

use rustc_hash::FxHashMap;
use serde::Serialize;

use super::asker::{Asker, LIBRARIES, NCCL, is_passed_on};
use super::communicators::Communicators;
use super::rows::{MemoryPart, MemoryRow, Place, Rows};
use super::sums::{DeviceSums, Key, MemorySums};
use crate::recording::{CallSite, Names, is_workspace};
use gpushim_trace::{Class, Event};

/// Most stacks of allocations that are resolved, the ones with most bytes.
const NAMED: usize = 2048;
/// Most stacks of tensors that are searched for workspaces, and the least bytes of one.
const WORKSPACES: usize = 64;
const WORKSPACE_LEAST: u64 = 1 << 20;

/// The memory of a device at a moment, by owner. The rows add up to the bytes that are used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DeviceMemory {
    /// Device ordinal; null if it is not known.
    pub device: Option<u8>,
    /// When, ns since the start.
    pub ns: u64,
    /// The rows, in the order of the table.
    pub rows: Vec<MemoryRow>,
    /// The sum of the rows, bytes.
    pub used: u64,
    /// The sum without other processes, bytes.
    pub by_process: u64,
    /// Other processes have a row of their own. Else they are in the last row, if the driver was asked.
    pub others_told: bool,
    /// The driver said how much is used. Else the rows have only the memory that is recorded.
    pub driver_told: bool,
    /// Bytes of the device, if that is known.
    pub total: Option<u64>,
}

/// Allocating code by stack. It is cached, since resolving a stack takes long.
#[derive(Debug, Default)]
pub struct Askers(FxHashMap<u32, (Asker, bool)>);

impl Askers {
    /// Returns the code of a stack. The flag is true if a request was passed on for one array.
    fn of(&mut self, names: &mut dyn Names, stack: u32) -> (Asker, bool) {
        let known = self.0.entry(stack).or_insert_with(|| {
            let frames = names.stack(stack);
            (Asker::of(&frames), is_passed_on(&frames))
        });
        known.clone()
    }
}

impl DeviceMemory {
    /// Makes the table of each device that the process uses, at the moment of the sums or at the
    /// end.
    pub fn of(memory: &MemorySums, at_end: bool, names: &mut dyn Names) -> Vec<DeviceMemory> {
        let mut askers = Askers::default();
        let devices = memory.devices();
        devices
            .map(|(device, of)| {
                let making = Making {
                    communicators: &memory.communicators,
                    device,
                    of,
                    at_end,
                };
                making.table(&mut askers, names)
            })
            .filter(|one| !one.rows.is_empty())
            .collect()
    }
}

#[cfg(test)]
impl DeviceMemory {
    /// Makes a table with tensors alone, for tests.
    pub fn of_tensors(bytes: u64) -> DeviceMemory {
        let mut rows = Rows::default();
        rows.plain(MemoryPart::Tensors, "PyTorch", "tensors", (bytes, 1));
        let row = |((part, owner, what, ..), (bytes, blocks)): (Place, (u64, u64))| MemoryRow {
            part,
            owner,
            what,
            made_at: None,
            number: None,
            bytes,
            blocks,
        };
        DeviceMemory {
            device: Some(0),
            ns: 0,
            rows: rows.0.into_iter().map(row).collect(),
            used: bytes,
            by_process: bytes,
            others_told: false,
            driver_told: false,
            total: None,
        }
    }
}

impl DeviceMemory {
    /// Makes an empty table of this device.
    pub fn emptied(&self) -> DeviceMemory {
        DeviceMemory {
            rows: Vec::new(),
            used: 0,
            by_process: 0,
            ..self.clone()
        }
    }
}

/// Inputs for the table of a device.
struct Making<'a> {
    communicators: &'a Communicators,
    device: u8,
    of: &'a DeviceSums,
    at_end: bool,
}

impl Making<'_> {
    fn table(&self, askers: &mut Askers, names: &mut dyn Names) -> DeviceMemory {
        let totals = self.of.totals(self.at_end);
        let mut held: Vec<(Key, u64, u64)> = self.of.held(self.at_end).collect();
        held.sort_unstable_by_key(|(key, bytes, _)| (std::cmp::Reverse(*bytes), *key));
        let mut rows = Rows::default();
        // Bytes and blocks of PyTorch's segments outside of pools of graphs.
        let mut segments = (0_u64, 0_u64);
        let mut rooms = 0_u64;
        let blocks = held.iter().filter(|(key, ..)| !key.is_tensor);
        for (number, (key, bytes, count)) in blocks.enumerate() {
            rooms = rooms.saturating_add(*bytes);
            let (owner, passed_on) = match number < NAMED && key.stack != 0 {
                true => askers.of(names, key.stack),
                false => (Asker::NotRecorded, false),
            };
            let amount = (*bytes, *count);
            match owner {
                _ if key.class == Class::GraphNode => {
                    rows.plain(
                        MemoryPart::GraphNodes,
                        "CUDA graphs",
                        "memory nodes",
                        amount,
                    );
                }
                Asker::Framework(name) if passed_on => {
                    rows.plain(MemoryPart::Tensors, name, "tensors", amount);
                }
                Asker::Framework(name) if key.captured => {
                    rows.plain(MemoryPart::GraphPools, name, "pools of CUDA graphs", amount);
                }
                Asker::Framework("PyTorch") => {
                    segments = (segments.0.saturating_add(*bytes), segments.1 + count);
                }
                Asker::Framework(name) => {
                    rows.plain(
                        MemoryPart::Cache,
                        name,
                        "its memory, arrays included",
                        amount,
                    );
                }
                Asker::Library(NCCL) => rows.add(self.of_nccl(key), *bytes, *count),
                Asker::Library(number) => {
                    let library = LIBRARIES.get(number);
                    let (name, what) = library.map_or(("", ""), |one| (one.name, one.what));
                    rows.plain(MemoryPart::Library, name, what, amount);
                }
                Asker::Code(file) => {
                    rows.plain(MemoryPart::Code, &file, "allocations of its own", amount);
                }
                Asker::NotRecorded => {
                    let what = match (key.earlier, key.stack) {
                        (true, _) => "made before the oldest event",
                        (false, 0) => "without a recorded stack",
                        (false, _) => "by code that is not known",
                    };
                    rows.plain(MemoryPart::NotRecorded, "allocations", what, amount);
                }
            }
        }
        let reserved = u64::try_from(totals.reserved).unwrap_or(0);
        let kept = (reserved.saturating_sub(rooms), 0);
        rows.plain(MemoryPart::Pool, "gpushim", "kept for reuse", kept);
        let unseen = self.framework(segments, totals.framework, &held, &mut rows, names);
        let unseen = unseen.saturating_add(rooms.saturating_sub(reserved));
        self.finish(rows, totals.ns, unseen, names)
    }

    /// Adds PyTorch's tensors, workspaces and cache from its segments. Returns bytes of tensors in
    /// memory that no event reserved.
    fn framework(
        &self,
        mut segments: (u64, u64),
        said: Option<u64>,
        held: &[(Key, u64, u64)],
        rows: &mut Rows,
        names: &mut dyn Names,
    ) -> u64 {
        let (mut tensors, mut workspaces) = ((0_u64, 0_u64), (0_u64, 0_u64));
        let its = held
            .iter()
            .filter(|(key, ..)| key.is_tensor && !key.captured);
        for (number, (key, bytes, count)) in its.enumerate() {
            let may_be = number < WORKSPACES && *bytes >= WORKSPACE_LEAST && key.stack != 0;
            let sum = match may_be && is_workspace(&names.stack(key.stack)) {
                true => &mut workspaces,
                false => &mut tensors,
            };
            *sum = (sum.0.saturating_add(*bytes), sum.1 + count);
        }
        let in_use = tensors.0.saturating_add(workspaces.0);
        let pools = (rows.0.iter())
            .filter(|(place, _)| place.0 == MemoryPart::GraphPools)
            .fold(0_u64, |sum, (_, row)| sum.saturating_add(row.0));
        let said = said.unwrap_or(0).saturating_sub(pools);
        // Segments may be in other rows for these reasons: they have no stacks, the recording has
        // only a framework's memory, or another allocator serves the framework.
        let others = [
            MemoryPart::Communicator,
            MemoryPart::Code,
            MemoryPart::Library,
        ];
        for part in [MemoryPart::NotRecorded, MemoryPart::Pool]
            .into_iter()
            .chain(others)
        {
            let lacking = in_use.max(said).saturating_sub(segments.0);
            let taken = rows.take(part, lacking);
            segments = (segments.0 + taken.0, segments.1 + taken.1);
        }
        let cache = match self.of.has_tensors() {
            true => "cached and not in use",
            false => "segments, tensors included",
        };
        rows.plain(MemoryPart::Tensors, "PyTorch", "tensors", tensors);
        let workspaces_of = "workspaces of cuBLAS";
        rows.plain(MemoryPart::Workspaces, "PyTorch", workspaces_of, workspaces);
        let cached = (segments.0.saturating_sub(in_use), segments.1);
        rows.plain(MemoryPart::Cache, "PyTorch", cache, cached);
        in_use.saturating_sub(segments.0)
    }

    /// Returns the row of a block of NCCL.
    fn of_nccl(&self, key: &Key) -> Place {
        let number = key
            .communicator
            .or_else(|| self.communicators.only_on(self.device));
        let made = number.and_then(|number| self.communicators.get(number));
        let owner = "NCCL".to_string();
        match (made, number) {
            (Some(made), Some(number)) => {
                let ranks = match made.ranks {
                    0 => "communicator".to_string(),
                    1 => "communicator of 1 rank".to_string(),
                    ranks => format!("communicator of {ranks} ranks"),
                };
                let number = u64::try_from(number).ok().map(|number| number + 1);
                (MemoryPart::Communicator, owner, ranks, number, made.stack)
            }
            _ if self.communicators.is_empty() => {
                // NCCL makes each communicator on a thread of its own.
                let what = "communicator, by its thread".to_string();
                (
                    MemoryPart::Communicator,
                    owner,
                    what,
                    Some(key.thread.into()),
                    0,
                )
            }
            _ => {
                let what = "communicators, for which is not told";
                (MemoryPart::Communicator, owner, what.to_string(), None, 0)
            }
        }
    }

    /// Adds the driver's memory and makes the table. `unseen` is the bytes of blocks in memory that
    /// no event reserved.
    fn finish(&self, mut rows: Rows, ns: u64, unseen: u64, names: &mut dyn Names) -> DeviceMemory {
        let driver = self.of.totals(self.at_end).driver;
        let bytes = |signed: i128| u64::try_from(signed.max(0)).unwrap_or(u64::MAX);
        let (mut modules, mut graphs) = (driver.modules, driver.graphs);
        let others = driver.others.filter(|_| driver.rest.is_some());
        if let Some(rest) = driver.rest {
            let mut own = rest - i128::from(unseen) - others.unwrap_or(0);
            // Memory that other threads took at the same time was counted as code and graphs, too.
            for part in [&mut modules, &mut graphs] {
                let less = (-own).clamp(0, *part);
                *part -= less;
                own += less;
            }
            let made = self.of.driver.context_made.unwrap_or(0) - others.unwrap_or(0);
            let contexts = made.clamp(0, own.max(0));
            let (of_contexts, of_rest) = match others {
                Some(_) => ("contexts", REST),
                None => ("contexts, and other processes", REST),
            };
            let of_rest = match contexts {
                0 if others.is_none() => REST_OF_ALL,
                0 => REST_OF_CONTEXTS,
                _ => of_rest,
            };
            rows.plain(
                MemoryPart::Contexts,
                "CUDA",
                of_contexts,
                (bytes(contexts), 0),
            );
            rows.plain(
                MemoryPart::Rest,
                "CUDA",
                of_rest,
                (bytes(own - contexts), 0),
            );
            let others = bytes(others.unwrap_or(0));
            let owner = "other processes, and the driver itself";
            rows.plain(MemoryPart::OtherProcesses, owner, "", (others, 0));
        }
        rows.plain(
            MemoryPart::Modules,
            "CUDA",
            "code that was loaded",
            (bytes(modules), 0),
        );
        rows.plain(
            MemoryPart::Graphs,
            "CUDA graphs",
            "executable graphs",
            (bytes(graphs), 0),
        );
        let row = |((part, owner, what, number, stack), (bytes, blocks)): (Place, (u64, u64))| {
            MemoryRow {
                part,
                owner,
                what,
                made_at: (stack != 0)
                    .then(|| CallSite::of(names, stack).function)
                    .flatten(),
                number,
                bytes,
                blocks,
            }
        };
        let rows: Vec<MemoryRow> = rows.0.into_iter().map(row).collect();
        let sum = |of: &dyn Fn(&&MemoryRow) -> bool| {
            let those = rows.iter().filter(of);
            those.fold(0_u64, |sum, row| sum.saturating_add(row.bytes))
        };
        DeviceMemory {
            device: Some(self.device).filter(|device| *device != Event::NO_DEVICE),
            ns,
            used: sum(&|_| true),
            by_process: sum(&|row| row.part != MemoryPart::OtherProcesses),
            others_told: others.is_some(),
            driver_told: driver.rest.is_some(),
            total: self.of.driver.total,
            rows,
        }
    }
}

/// Texts of the last row of a process's own memory.
const REST: &str = "kernels loaded at first use, their local memory, other: not told apart";
const REST_OF_CONTEXTS: &str = "contexts, kernels, their local memory, other: not told apart";
const REST_OF_ALL: &str =
    "contexts, kernels, their local memory, other, and other processes: not told apart";
