//! The code that a trace speaks of, and its names.

use std::path::Path;

use rustc_hash::FxHashSet;

use crate::perf_map::PerfMap;
use crate::symbols::{Bundle, Jit, Module, Options, Symbolizer};
use crate::trace::Trace;

/// Modules, names of code in no file, and every return address of a trace's stacks.
#[derive(Clone, Debug)]
pub struct Code {
    /// What was loaded.
    pub modules: Vec<Module>,
    /// Names of code in no file.
    pub jit: Vec<Jit>,
    /// Return addresses, each once, as stacks hold them.
    pub addresses: Vec<u64>,
}

impl Code {
    /// What the stacks of a trace lead through.
    pub fn of(trace: &Trace) -> Code {
        let addresses: FxHashSet<u64> = trace.return_addresses().collect();
        let mut addresses: Vec<u64> = addresses.into_iter().collect();
        addresses.sort_unstable();
        let modules: Vec<Module> = trace
            .modules()
            .iter()
            .map(|module| Module {
                begin: module.begin,
                end: module.end,
                bias: module.bias,
                path: trace.string(module.path).unwrap_or_default(),
                build_id: module.build_id.as_bytes().to_vec(),
                generation: u32::try_from(module.generation).unwrap_or(u32::MAX),
            })
            .collect();
        // What has a generation is in a module.
        let in_module = |address: &u64| {
            let mut modules = modules.iter();
            address >> 48 != 0 || modules.any(|module| (module.begin..module.end).contains(address))
        };
        let generated = addresses.iter().copied().filter(|a| !in_module(a));
        let jit = names(trace, generated.collect());
        Code {
            jit,
            addresses,
            modules,
        }
    }

    /// Who names it: by files of this machine, and by what was packed beside the trace.
    pub fn symbolizer(&self, trace: &Path, options: Options) -> Symbolizer {
        let (bundle, problems) = Bundle::open(&Bundle::beside(trace));
        let options = Options {
            bundle,
            problems,
            ..options
        };
        Symbolizer::new(self.modules.clone(), self.jit.clone(), options)
    }
}

/// The names of code in no file: what the trace has of them, and for what the process did not get to write
/// there the perf map, if it is still on this machine.
fn names(trace: &Trace, addresses: Vec<u64>) -> Vec<Jit> {
    let pid = trace.fact("pid").and_then(|pid| pid.parse().ok());
    let mut map = PerfMap::of_process(pid.unwrap_or(0));
    let mut is_read = false;
    let mut names = Vec::new();
    for address in addresses {
        // A return address is after its call, which may be the last thing of its function.
        let call = address.saturating_sub(1);
        let name = trace.jit_name(call).or_else(|| {
            if !std::mem::replace(&mut is_read, true) {
                // Without it there are no names; that is all.
                let _ = map.refresh();
            }
            map.find(call).map(|(_, _, name)| name.to_string())
        });
        names.extend(name.map(|name| Jit {
            begin: call,
            end: address,
            name,
        }));
    }
    names
}
