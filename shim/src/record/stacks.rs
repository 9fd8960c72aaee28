//! Call stacks of allocations: which allocations get one, and the facts by which they can be read
//! on another machine.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

use gpushim_config::Stacks;
use gpushim_trace::perf_map::PerfMap;
use gpushim_trace::{BuildId, Module, Pushed, Writer};
use gpushim_unwind::{self, Again, Frames, Met, each_object};

use crate::base::{settings, thread};
use crate::record::known_stacks::{self, KnownStacks};
use crate::record::python::{self, Functions, Row};
use crate::record::{phase, trace};

/// Number of unloaded libraries at the last check.
static UNLOADED: AtomicU64 = AtomicU64::new(0);
/// The modules that are or were loaded, by address.
static AGAIN: Mutex<Again> = Mutex::new(Again::new());
/// True if frames are numbered by this table.
static IS_AGAIN: AtomicBool = AtomicBool::new(false);

/// Arranges that modules go into the trace as they are met.
pub fn start() {
    if settings::config().stacks != Stacks::Off {
        gpushim_unwind::on_new_module(met);
    }
}

/// Returns the stack id for an allocation of this many bytes: its frames, if this size gets any,
/// above the open ranges.
#[inline]
pub fn of_allocation(writer: &Writer, bytes: u64) -> u32 {
    let ranges = phase::current();
    let wanted = match settings::config().stacks {
        Stacks::Off => return ranges,
        Stacks::All => true,
        Stacks::Above(least) => bytes >= least,
        Stacks::OneIn(n) => thread::one_in(n),
    };
    if wanted { walk(writer, ranges) } else { ranges }
}

#[inline(never)]
fn walk(writer: &Writer, ranges: u32) -> u32 {
    known_stacks::with(|known| match known {
        None => {
            let mut frames = Frames::new();
            gpushim_unwind::walk(&mut frames);
            name(writer, ranges, &mut frames).0.id
        }
        Some(known) => {
            let mut frames = Frames::new();
            let met = gpushim_unwind::walk_known(&mut frames, known.walks());
            known
                .find(met, writer, ranges)
                .unwrap_or_else(|| walk_anew(writer, ranges, known, met, &mut frames))
        }
    })
}

/// Names the stack of a walk, known or new, whose stack is not known yet.
#[inline(never)]
fn walk_anew(
    writer: &Writer,
    ranges: u32,
    known: &KnownStacks,
    met: Met,
    frames: &mut Frames,
) -> u32 {
    known.copy(met, frames);
    let (stack, functions) = name(writer, ranges, frames);
    if stack.is_whole {
        known.keep(met, writer, ranges, stack.id, functions);
    }
    stack.id
}

/// Returns the stack of a walk, and if it has functions of Python.
#[inline]
fn name(writer: &Writer, ranges: u32, frames: &mut Frames) -> (Pushed, Functions) {
    let is_whole = frames.is_whole();
    if IS_AGAIN.load(Ordering::Relaxed)
        && let Ok(again) = AGAIN.lock()
    {
        again.number(frames.as_mut_slice());
    }
    let all = frames.as_slice();
    // This library's own frames are the innermost; the program's begin after them.
    let own = own();
    let theirs = all.iter().position(|address| !own.contains(address));
    let theirs = all.get(theirs.unwrap_or(0)..).unwrap_or_default();
    let mut mixed = Row::new();
    let (mixed, functions) = python::in_place(writer, theirs, is_whole, &mut mixed);
    let stack = writer.whole_stack(ranges, mixed.unwrap_or(theirs));
    (stack, functions)
}

/// Returns the address range of this library.
fn own() -> &'static std::ops::Range<u64> {
    static OWN: OnceLock<std::ops::Range<u64>> = OnceLock::new();
    OWN.get_or_init(|| {
        let here = own as *const () as u64;
        gpushim_unwind::module_of(here).map_or(0..0, |module| module.begin..module.end)
    })
}

/// Records a module that was met for the first time since code last changed.
fn met(module: &gpushim_unwind::Module) {
    let Some(writer) = trace::opened() else {
        return;
    };
    let Ok(mut again) = AGAIN.lock() else { return };
    let (generation, is_new) = again.meet(module);
    IS_AGAIN.store(!again.is_empty(), Ordering::Relaxed);
    drop(again);
    if !is_new {
        return;
    }
    python::met(&module.path);
    let path = std::path::absolute(&module.path).unwrap_or_else(|_| module.path.clone());
    // The executable's own path stays valid after the process's entry in /proc is gone.
    let path = std::fs::canonicalize(&path).unwrap_or(path);
    writer.module(&Module {
        begin: module.begin,
        end: module.end,
        bias: module.bias,
        path: writer.intern(&path.to_string_lossy()),
        generation,
        build_id: BuildId::new(module.build_id.as_bytes()),
    });
}

/// Does the background thread's work for stacks.
pub fn maintain(writer: &Writer) {
    if settings::config().stacks == Stacks::Off {
        return;
    }
    // The linker also unloads libraries by itself: the ones that it opened itself or through its
    // own handles.
    unloaded();
    name_generated_code(writer);
}

/// Checks for unloaded code after the program closed a library.
pub fn closed() {
    if trace::opened().is_some() && settings::config().stacks != Stacks::Off {
        unloaded();
    }
}

fn unloaded() {
    let unloaded = unloads();
    if UNLOADED.swap(unloaded, Ordering::Relaxed) != unloaded {
        // Other code may be where a library was.
        gpushim_unwind::code_changed();
    }
}

/// Returns the number of libraries that were unloaded so far.
fn unloads() -> u64 {
    let mut unloaded = 0;
    each_object(|info| {
        unloaded = info.dlpi_subs;
        true
    });
    unloaded
}

/// Progress in naming code that is in no file.
struct Named {
    map: PerfMap,
    /// Number of nodes of the trace that were examined.
    nodes: u32,
    /// Addresses in no module that the map has not named yet, with the number of look-ups.
    open: Vec<(u64, u8)>,
    known: std::collections::HashSet<u64>,
}

/// Most look-ups of one address in the map: its line is written before the code first runs.
const ASKED: u8 = 20;
/// Most addresses per look-up, which bounds the memory that their names take.
const AT_ONCE: usize = 4096;

/// Copies the names of generated code in stacks from the perf map. The map is another file, and may
/// be gone when the trace is read.
fn name_generated_code(writer: &Writer) {
    static NAMED: Mutex<Option<Named>> = Mutex::new(None);
    // The end of the process does not wait while the background thread is blocked in a file system.
    let Ok(mut named) = NAMED.try_lock() else {
        return;
    };
    let named = named.get_or_insert_with(|| Named {
        map: PerfMap::of_process(std::process::id()),
        nodes: 0,
        open: Vec::new(),
        known: std::collections::HashSet::new(),
    });
    let (frames, nodes) = writer.frames_since(named.nodes);
    named.nodes = nodes;
    for address in frames {
        if !named.known.contains(&address) && gpushim_unwind::module_of(address).is_none() {
            named.known.insert(address);
            named.open.push((address, 0));
        }
    }
    let asked: Vec<u64> = named.open.iter().take(AT_ONCE).map(call_of).collect();
    if asked.is_empty() {
        return;
    }
    // A new address may have its line in a part of the map that was read before.
    let anew = named
        .open
        .iter()
        .take(AT_ONCE)
        .any(|(_, asked)| *asked == 0);
    // Without a map that can be trusted there are no names; the look-ups count nevertheless.
    let found = named.map.find(&asked, anew).unwrap_or_default();
    let mut place = 0;
    named.open.retain_mut(|open| {
        place += 1;
        if place > AT_ONCE {
            return true;
        }
        if let Some(code) = found.get(&call_of(open)) {
            writer.jit(code.begin, code.size, writer.intern(&code.name));
            return false;
        }
        open.1 += 1;
        open.1 < ASKED
    });
}

/// Returns an address in the call: the return address is after it, and may be outside the function.
fn call_of((address, _): &(u64, u8)) -> u64 {
    address.saturating_sub(1)
}
