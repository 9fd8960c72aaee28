//! The code of a trace's stacks, and its names.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use rustc_hash::{FxHashMap, FxHashSet};

use crate::Recording;
use crate::symbols::{Bundle, Module, Options, Symbolizer};
use gpushim_trace::Trace;
use gpushim_trace::perf_map::PerfMap;

/// Highest number of modules, more than a writer has room for.
const MODULES: usize = 10_000;

/// Modules, names of code in no file, and every return address of a trace's stacks.
#[derive(Clone, Debug)]
pub struct Code {
    /// Modules that the process loaded.
    pub modules: Vec<Module>,
    /// Names of code in no file, by the addresses of the calls in it.
    pub jit: FxHashMap<u64, String>,
    /// Return addresses, each once, as stacks hold them.
    pub addresses: Vec<u64>,
}

impl Code {
    /// Collects the code of the stacks of a trace.
    pub fn of(trace: &Trace) -> Code {
        let addresses: FxHashSet<u64> = trace.return_addresses().collect();
        let mut addresses: Vec<u64> = addresses.into_iter().collect();
        addresses.sort_unstable();
        let modules: Vec<Module> = trace
            .modules()
            .iter()
            .take(MODULES)
            .map(|module| Module {
                begin: module.begin,
                end: module.end,
                bias: module.bias,
                path: trace.string(module.path).unwrap_or_default(),
                build_id: module.build_id.as_bytes().to_vec(),
                generation: u32::try_from(module.generation).unwrap_or(u32::MAX),
            })
            .collect();
        // Beginnings in their order, each with the farthest end of modules that begin no later.
        let mut ends: Vec<(u64, u64)> = modules.iter().map(|one| (one.begin, one.end)).collect();
        ends.sort_unstable();
        let mut farthest = 0;
        for (_, end) in &mut ends {
            farthest = farthest.max(*end);
            *end = farthest;
        }
        // An address with a generation is in a module.
        let in_module = |address: &u64| {
            let begun = ends.partition_point(|(begin, _)| begin <= address);
            let last = begun.checked_sub(1).and_then(|last| ends.get(last));
            address >> 48 != 0 || last.is_some_and(|(_, end)| address < end)
        };
        let generated = addresses.iter().copied().filter(|a| !in_module(a));
        let jit = names(trace, generated.collect());
        Code {
            jit,
            addresses,
            modules,
        }
    }

    /// Names the code, from files of this machine, and from the symbols packed beside the trace.
    pub fn symbolizer(&self, trace: &Path, options: Options) -> Symbolizer {
        let (bundle, problems) = Bundle::open(trace);
        let options = Options {
            bundle,
            problems,
            ..options
        };
        Symbolizer::new(self.modules.clone(), self.jit.clone(), options)
    }
}

/// Returns the names of code in no file, by the addresses of the calls. They are from the trace, or
/// else from the perf map on this machine.
fn names(trace: &Trace, addresses: Vec<u64>) -> FxHashMap<u64, String> {
    // A return address is after its call, which may be the last instruction of its function.
    let calls = addresses.iter().map(|address| address.saturating_sub(1));
    let mut names: Vec<(u64, Option<String>)> =
        calls.map(|call| (call, trace.jit_name(call))).collect();
    let missing = names.iter().filter(|(_, name)| name.is_none());
    let missing: Vec<u64> = missing.map(|(call, _)| *call).collect();
    if !missing.is_empty() {
        // Without the map, these names are unknown.
        let found = map_of(trace).and_then(|mut map| map.find(&missing, true).ok());
        let mut found = found.unwrap_or_default();
        for (call, name) in names.iter_mut().filter(|(_, name)| name.is_none()) {
            *name = found.remove(call).map(|named| named.name);
        }
    }
    let named = names.into_iter();
    named
        .filter_map(|(call, name)| Some((call, name?)))
        .collect()
}

/// Returns the perf map that the process of a trace wrote. It must be:
///
/// - on this host, of the trace's owner
/// - written after the trace began
/// - not created by another process after this one ended
fn map_of(trace: &Trace) -> Option<PerfMap> {
    let process = Recording::process(trace);
    let pid = process.pid?;
    if process.host? != host()? {
        return None;
    }
    let of_trace = std::fs::metadata(trace.path()).ok()?;
    let map = PerfMap::of_process(pid).owned_by(of_trace.uid());
    let of_map = map.metadata()?;
    let began = SystemTime::UNIX_EPOCH + Duration::from_nanos(trace.header().wall_ns);
    let is_older = of_map.modified().ok()? < began;
    // The time of a mapped file is written only now and then.
    let last = of_trace.modified().ok()?.checked_add(LATE)?;
    let is_later = of_map.created().is_ok_and(|created| created > last);
    (!is_older && !is_later).then_some(map)
}

/// Time after the last write of a trace, by its file, within which its process may have created a
/// perf map.
const LATE: Duration = Duration::from_secs(60);

fn host() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim_end().to_string())
}
