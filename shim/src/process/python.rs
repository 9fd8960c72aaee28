//! Python: its functions made visible in stacks, where that is asked for.

use gpushim_config::{Config, PYTHON};

use crate::base::{boundary, preloaded, settings};

/// The variable that CPython 3.12 and later read at start.
const SUPPORT: &str = "PYTHONPERFSUPPORT";

/// Called by the dynamic linker before `main`.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = at_start;

extern "C" fn at_start() {
    if settings::variable(PYTHON.name).is_some() && preloaded::is_ours() {
        boundary::run(|| (), show_functions);
    }
}

fn show_functions() {
    let of_interest = |name: &str| {
        (name == PYTHON.name)
            .then(|| settings::variable(name))
            .flatten()
    };
    // An invalid value is reported later, at the first call that the shim serves.
    let (config, _) = Config::from_lookup(of_interest);
    if config.python && std::env::var_os(SUPPORT).is_none() {
        // SAFETY: preloaded libraries are initialised before the program's first thread.
        unsafe { std::env::set_var(SUPPORT, "1") };
    }
}
