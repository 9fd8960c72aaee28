//! The settings that come from the environment.

use std::ffi::OsString;
use std::sync::OnceLock;

use gpushim_alloc::Policy;
use gpushim_config::{Config, ENABLED, Elastic, Log, Resolved};

use crate::base::preloaded;
use crate::base::stderr::say;

static RESOLVED: OnceLock<Resolved> = OnceLock::new();

/// Returns the configuration in force.
#[inline]
pub fn config() -> &'static Config {
    &resolved().config
}

/// Returns the configuration and its sources, read from the environment at the first CUDA call.
#[inline]
pub fn resolved() -> &'static Resolved {
    RESOLVED.get_or_init(|| {
        let mut resolved = if is_privileged() {
            Resolved::from_lookup(variable)
        } else {
            Resolved::from_env()
        };
        if !preloaded::is_ours() {
            // A pool that does not see the process's streams and captures cannot reuse memory
            // safely.
            resolved.config.policy = Policy::Off;
            resolved.config.elastic = Elastic::Off;
        }
        if is_privileged() {
            // Such a process gets no trace file in its working folder, and only the driver's own
            // memory.
            resolved.config.policy = Policy::Off;
            resolved.config.elastic = Elastic::Off;
            resolved.config.trace = None;
        }
        if resolved.config.log >= Log::Warn {
            for problem in &resolved.problems {
                say(&problem.to_string());
            }
        }
        resolved
    })
}

/// True if the process's environment has `GPUSHIM=off`. Read once, before the rest of the
/// configuration: without the variable it costs one look-up.
pub fn is_off() -> bool {
    static OFF: OnceLock<bool> = OnceLock::new();
    *OFF.get_or_init(|| {
        let value = variable(ENABLED.name).filter(|value| !value.is_empty());
        value.is_some_and(|value| {
            let of_interest = |name: &str| (name == ENABLED.name).then(|| value.clone());
            let (config, _) = Config::from_lookup(of_interest);
            !config.enabled
        })
    })
}

/// Returns an environment variable. `None` in a process that has more rights than the author of its
/// environment.
pub fn variable(name: &str) -> Option<OsString> {
    if is_privileged() {
        return None;
    }
    std::env::var_os(name)
}

/// True if the kernel gave the process rights that its starting user does not have (set-user-id and
/// the like).
pub fn is_privileged() -> bool {
    // SAFETY: getauxval has no preconditions.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}
