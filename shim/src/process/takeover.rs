//! Takeover: at the start of a process that asks for it, frameworks are directed to stream-ordered
//! memory, or PyTorch to expandable segments.
//!
//! The only work of the shim before the first call arrives, beside the registration for NVTX.
//! `gpushim_config` decides; the decision is written to the trace, if the process opens one.

use std::sync::OnceLock;

use gpushim_config::takeover::{Decision, decide, expand, limits_of};
use gpushim_config::{Config, ELASTIC, Elastic, TAKEOVER};
use gpushim_trace::Writer;

use crate::base::{boundary, preloaded, settings};

static DECIDED: OnceLock<Vec<Decision>> = OnceLock::new();
/// Decision about PyTorch's expandable segments.
static EXPANDED: OnceLock<Decision> = OnceLock::new();

/// Called by the dynamic linker once the library's dependencies are ready, before `main`.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = at_start;

extern "C" fn at_start() {
    // Nearly every process is without both, and pays only for two look-ups in the environment.
    let is_set = |name| settings::variable(name).is_some();
    let is_asked = is_set(TAKEOVER.name) || is_set(ELASTIC.name);
    if is_asked && preloaded::is_ours() && !settings::is_off() {
        boundary::run(|| (), take_over);
    }
}

fn take_over() {
    let wanted = |name: &str| {
        let of_interest = name == TAKEOVER.name || name == ELASTIC.name;
        of_interest.then(|| settings::variable(name)).flatten()
    };
    // An invalid value is reported later, at the first call that the shim serves.
    let (config, _) = Config::from_lookup(wanted);
    let decided = decide(config.takeover, settings::variable);
    let set = |decision: &Decision| {
        for (name, value) in &decision.set {
            // SAFETY: preloaded libraries are initialised before the program's first thread.
            unsafe { std::env::set_var(name, value) };
        }
    };
    decided.iter().for_each(set);
    let _ = DECIDED.set(decided);
    if config.elastic != Elastic::Off {
        // After takeover, which chooses another backend.
        let expanded = expand(settings::variable);
        set(&expanded);
        let _ = EXPANDED.set(expanded);
    }
}

/// Writes the decisions about each framework, and the limits of the memory that it now uses.
pub fn write_facts(writer: &Writer) {
    if let Some(expanded) = EXPANDED.get() {
        writer.fact("elastic.torch", &expanded.words);
    }
    for decision in DECIDED.get().into_iter().flatten() {
        let key = format!("takeover.{}", decision.framework.key());
        writer.fact(&key, &decision.words);
        if decision.taken {
            writer.fact(&format!("{key}.limits"), &limits_of(decision.framework));
        }
    }
}
