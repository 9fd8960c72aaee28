//! Takeover: at the start of a process that asks for it, frameworks are directed to stream-ordered
//! memory.
//!
//! The only work of the shim before the first call arrives, beside the registration for NVTX.
//! `gpushim_config` decides; the decision is written to the trace, if the process opens one.

use std::sync::OnceLock;

use gpushim_config::takeover::{Decision, decide, limits_of};
use gpushim_config::{Config, TAKEOVER};
use gpushim_trace::Writer;

use crate::base::{boundary, preloaded, settings};

static DECIDED: OnceLock<Vec<Decision>> = OnceLock::new();

/// Called by the dynamic linker once the library's dependencies are ready, before `main`.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = at_start;

extern "C" fn at_start() {
    // Nearly every process is without takeover, and pays only for one look-up in the environment.
    let is_asked = settings::variable(TAKEOVER.name).is_some();
    if is_asked && preloaded::is_ours() && !settings::is_off() {
        boundary::run(|| (), take_over);
    }
}

fn take_over() {
    let wanted = |name: &str| {
        let of_interest = name == TAKEOVER.name;
        of_interest.then(|| settings::variable(name)).flatten()
    };
    // An invalid value is reported later, at the first call that the shim serves.
    let (config, _) = Config::from_lookup(wanted);
    let decided = decide(config.takeover, settings::variable);
    for (name, value) in decided.iter().flat_map(|decision| &decision.set) {
        // SAFETY: preloaded libraries are initialised before the program's first thread.
        unsafe { std::env::set_var(name, value) };
    }
    let _ = DECIDED.set(decided);
}

/// Writes the decision about each framework, and the limits of the memory that it now uses.
pub fn write_facts(writer: &Writer) {
    for decision in DECIDED.get().into_iter().flatten() {
        let key = format!("takeover.{}", decision.framework.key());
        writer.fact(&key, &decision.words);
        if decision.taken {
            writer.fact(&format!("{key}.limits"), &limits_of(decision.framework));
        }
    }
}
