//! Recording processes, and the present state in their traces.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Instant;

use rustc_hash::FxHashMap;

use super::glance::Glance;
use super::table::Row;
use crate::device_memory::{DeviceMemory, MemorySums, When};
use crate::error::{Result, failed};
use crate::output::holder::Holder;
use crate::recording::{CallSite, Frame, Names, Recording, is_compressed};
use crate::shared_limit::SharedLimit;
use gpushim_trace::Trace;
use gpushim_trace::regular::open_regular;

/// Number of holders that are shown, and of stacks named for them. Several stacks may lead to one
/// function.
const HOLDERS: usize = 12;
const NAMED: usize = 4 * HOLDERS;

/// The processes that are watched.
pub struct Watch {
    /// Traces that were named; none for all that can be found, each time anew.
    named: Vec<PathBuf>,
    seen: FxHashMap<PathBuf, Seen>,
}

/// The data of a trace that is kept from one update to the next.
struct Seen {
    at: Instant,
    allocations: u64,
    /// By the frames of the stack: to name functions takes long, and they stay.
    who: FxHashMap<u64, CallSite>,
    /// Frames by stack. Only stacks of device memory are kept, which are few.
    frames: FxHashMap<u32, Rc<[Frame]>>,
}

/// Stacks whose frames are kept.
const FRAMES: usize = 10_000;

/// Names of a trace's stacks. Earlier results are kept in memory.
struct Remembered<'a> {
    trace: &'a Trace,
    known: &'a mut FxHashMap<u32, Rc<[Frame]>>,
    names: Option<Box<dyn Names + 'a>>,
}

impl Names for Remembered<'_> {
    fn stack(&mut self, id: u32) -> Rc<[Frame]> {
        if let Some(known) = self.known.get(&id) {
            return known.clone();
        }
        if self.known.len() >= FRAMES {
            self.known.clear();
        }
        let trace = self.trace;
        let names = self.names.get_or_insert_with(|| Recording::names(trace));
        let frames = names.stack(id);
        self.known.insert(id, frames.clone());
        frames
    }

    fn problems(&self) -> Vec<String> {
        self.names
            .as_ref()
            .map_or(Vec::new(), |names| names.problems())
    }
}

impl Watch {
    /// Watches the named process ids and trace files, or all recording processes if none is named.
    ///
    /// # Errors
    /// A process without a mapped trace, or a compressed file.
    pub fn new(named: &[PathBuf]) -> Result<Watch> {
        let mut paths = Vec::new();
        for name in named {
            let pid = name.to_str().and_then(|name| name.parse::<u32>().ok());
            match pid.filter(|_| !name.exists()) {
                Some(pid) => {
                    let found = traces_of(pid);
                    if found.is_empty() {
                        return Err(failed!(
                            "find a trace of process {pid}: it is not being recorded, or you may not read its trace"
                        ));
                    }
                    paths.extend(found);
                }
                None if is_compressed(name) => {
                    return Err(failed!(
                        "follow {}: it is compressed, so no process writes it; `gpushim report` reads it",
                        name.display()
                    ));
                }
                None => paths.push(name.clone()),
            }
        }
        Ok(Watch {
            named: paths,
            seen: FxHashMap::default(),
        })
    }

    /// Looks at them now: a line for each, and why some have none.
    pub fn look(&mut self) -> (Vec<Row>, Vec<String>) {
        let paths = if self.named.is_empty() {
            running()
        } else {
            self.named.clone()
        };
        self.seen.retain(|path, _| paths.contains(path));
        let (mut rows, mut problems) = (Vec::new(), Vec::new());
        for path in paths {
            match Trace::open_ring(&path) {
                Ok(trace) => rows.push(self.row(path, &trace)),
                Err(error) => problems.push(error.to_string()),
            }
        }
        (rows, problems)
    }

    fn row(&mut self, path: PathBuf, trace: &Trace) -> Row {
        let glance = Glance::of(trace);
        let now = Instant::now();
        let seen = self.seen.entry(path).or_insert_with(|| Seen {
            at: now,
            allocations: glance.allocations,
            who: FxHashMap::default(),
            frames: FxHashMap::default(),
        });
        let passed = now.duration_since(seen.at).as_secs_f64();
        let made = glance.allocations.saturating_sub(seen.allocations);
        let rate = if passed > 0.0 {
            made as f64 / passed
        } else {
            0.0
        };
        (seen.at, seen.allocations) = (now, glance.allocations);
        let mut names = None;
        let mut holders: Vec<Holder> = Vec::new();
        for held in glance.holders.iter().take(NAMED) {
            let frames = Recording::frames(trace, held.stack);
            let who = seen.who.entry(frames).or_insert_with(|| {
                let names = names.get_or_insert_with(|| Recording::names(trace));
                CallSite::of(&mut **names, held.stack)
            });
            let known = holders
                .iter_mut()
                .find(|holder| holder.who.function == who.function);
            let share = held.bytes as f64 / glance.allocated.max(1) as f64;
            if let Some(holder) = known {
                holder.blocks += held.blocks;
                holder.bytes = holder.bytes.saturating_add(held.bytes);
                holder.share += share;
                continue;
            }
            holders.push(Holder {
                who: who.clone(),
                blocks: held.blocks,
                bytes: held.bytes,
                per_iteration: None,
                share,
                oldest_ns: Some(held.oldest_ns),
                made_before: false,
                kept_by: None,
            });
        }
        holders.sort_by_key(|holder| std::cmp::Reverse(holder.bytes));
        holders.truncate(HOLDERS);
        let memory_sums = MemorySums::of(trace, When::End);
        let mut names = Remembered {
            trace,
            known: &mut seen.frames,
            names,
        };
        let memory = DeviceMemory::of(&memory_sums, true, &mut names);
        let process = trace.process();
        let ledger = process.ledger.as_deref().map(Path::new);
        Row {
            memory,
            shared_limit: ledger.and_then(|path| SharedLimit::read(path).ok()),
            trace: trace.path().display().to_string(),
            pid: process.pid,
            program: program(process.argv.as_deref().unwrap_or_default()),
            rank: process.rank,
            runs: is_in_use(trace),
            allocated: glance.allocated,
            reserved: glance.reserved,
            share: share(trace, &glance),
            gpus: glance.devices,
            peak: glance.peak,
            growth_per_minute: glance.growth.map(|bytes| bytes.round() as i64),
            rate,
            out_of_memory: glance.out_of_memory,
            history: glance.history,
            holders,
        }
    }
}

/// The part of the memory of its devices that a process holds; `None` where their size is not
/// known.
fn share(trace: &Trace, glance: &Glance) -> Option<f64> {
    let gpus = trace.process().gpus;
    let bytes = |device: &u8| Some(gpus.get(device)?.bytes);
    let all: u64 = glance.devices.iter().map(bytes).sum::<Option<u64>>()?;
    (all > 0).then(|| glance.reserved.max(glance.allocated) as f64 / all as f64)
}

/// A command line without the folder of the program.
fn program(argv: &str) -> String {
    let (first, rest) = argv.split_once(' ').unwrap_or((argv, ""));
    let name = first.rsplit('/').next().unwrap_or(first);
    format!("{name} {rest}").trim_end().to_string()
}

/// True if the process that writes a trace still runs.
pub fn is_in_use(trace: &Trace) -> bool {
    let pid = trace.process().pid;
    pid.is_some_and(|pid| maps(pid, trace.path()))
}

/// True if a process has this file mapped.
fn maps(pid: u32, path: &Path) -> bool {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    shared_files(pid).contains(&path)
}

/// The traces of all processes that may be looked at.
pub fn running() -> Vec<PathBuf> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut paths: Vec<_> = pids.flat_map(traces_of).collect();
    paths.sort_unstable();
    // A forked child has its parent's.
    paths.dedup();
    paths
}

/// The traces that a process has mapped.
pub fn traces_of(pid: u32) -> Vec<PathBuf> {
    let mut files = shared_files(pid);
    files.retain(|path| is_trace(path));
    files
}

fn is_trace(path: &Path) -> bool {
    let mut head = [0; 8];
    let read = open_regular(path)
        .and_then(|(mut file, _)| file.read_exact(&mut head))
        .is_ok();
    read && &head == b"gpushim\0"
}

/// Files that a process has mapped to be written and shared, by `/proc/PID/maps`.
fn shared_files(pid: u32) -> Vec<PathBuf> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let shared = maps.lines().filter_map(|line| {
        let (place, path) = line.split_once('/')?;
        let is_shared = place.split_whitespace().nth(1) == Some("rw-s");
        is_shared.then(|| PathBuf::from(format!("/{path}")))
    });
    let mut files: Vec<_> = shared.collect();
    files.sort_unstable();
    files.dedup();
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_without_their_folders() {
        assert_eq!(
            program("/usr/bin/python3 /home/me/train.py --x 1"),
            "python3 /home/me/train.py --x 1"
        );
        assert_eq!(program("solver"), "solver");
        assert_eq!(program(""), "");
    }

    #[test]
    fn a_process_that_records_nothing() {
        // Other tests write traces in this process.
        let mut other = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .expect("a process");
        let error = Watch::new(&[other.id().to_string().into()]).err();
        other.kill().and_then(|()| other.wait()).expect("an end");
        let said = error.map(|error| error.to_string()).unwrap_or_default();
        assert!(said.starts_with("find a trace of process "), "{said}");
    }
}
