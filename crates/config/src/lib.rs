//! The configuration of gpushim: `GPUSHIM_*` environment variables, each defined once in
//! [`VARIABLES`].
//!
//! - [`Config`] has the values in force, typed.
//! - [`Resolved`] also has them as text, each with its origin, as `gpushim config` prints them.
//! - [`Problem`] stands for a value that cannot be parsed. It never stops a program: it is one line
//!   for stderr, and the default is used.
//! - [`takeover`] decides which variables point a framework at stream-ordered allocations.
//! - [`trace_path`] makes the path of a process's trace from a pattern.
//! - [`markdown`] generates `docs/configuration.md` from the same table.
//!
//! ```
//! use gpushim_config::Config;
//!
//! let (config, problems) = Config::from_lookup(|name| match name {
//!     "GPUSHIM_LIMIT" => Some("512M".into()),
//!     "GPUSHIM_DECAY" => Some("soon".into()),
//!     _ => None,
//! });
//! assert_eq!(config.limit.map(|limit| limit.bytes), Some(512 << 20));
//! let problem = problems.first().map(|problem| problem.variable.as_str());
//! assert_eq!(problem, Some("GPUSHIM_DECAY"));
//! ```

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use gpushim_alloc::{Policy, Reuse};
use gpushim_trace::{Facts, WriterOptions};

mod path;
pub mod takeover;
mod values;
mod variables;

pub use path::{DEFAULT_PATTERN, host, job, rank, trace_path, world};
pub use values::{
    Announcements, Autopsy, Elastic, Limit, LimitScope, Log, Stacks, Takeover, TraceMode, amount,
    duration, size,
};
pub use variables::{
    AUTOPSY, ELASTIC, ENABLED, LIBRARY, NVTX, TAKEOVER, VARIABLES, Variable, markdown,
};

/// Values of all settings in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// False if the library does nothing at all in the process.
    pub enabled: bool,
    /// Source of device memory, for `cudaMalloc` and for stream-ordered allocations.
    pub policy: Policy,
    /// Condition under which a freed block is handed out again.
    pub reuse: Reuse,
    /// Limit on the memory of each device; `None` for no limit by gpushim.
    pub limit: Option<Limit>,
    /// Processes for which the limit holds together.
    pub limit_scope: LimitScope,
    /// True if a program must not start without the limit.
    pub limit_required: bool,
    /// Bytes that the cache may hold per device; `None` leaves it to the policy.
    pub cache_max: Option<u64>,
    /// Time after which unused cached memory is given back to the driver; zero for never.
    pub decay: Duration,
    /// Bytes of a page of the policy `vmm`: a power of two, at least 2 MiB.
    pub page: u64,
    /// Pattern of the trace's path; `None` for no trace.
    pub trace: Option<String>,
    /// Bytes of the event ring.
    pub trace_size: u64,
    /// Selection of events that the trace keeps.
    pub trace_mode: TraceMode,
    /// Selection of facts about the process that the trace contains.
    pub trace_facts: Facts,
    /// Bytes that the spooled events may take; `None` for no limit.
    pub spool_size: Option<u64>,
    /// Free bytes that spooling leaves on the disk.
    pub spool_floor: u64,
    /// Selection of allocations that get a stack.
    pub stacks: Stacks,
    /// True if stacks have Python's functions.
    pub python: bool,
    /// Setting for the record of who keeps each block.
    pub owners: Announcements,
    /// Setting for the record of NVTX ranges and marks.
    pub nvtx: Announcements,
    /// Setting for the record of frameworks' own allocations.
    pub tensors: Announcements,
    /// Frameworks that are pointed at the stream-ordered API.
    pub takeover: Takeover,
    /// Setting for memory of PyTorch's own segments only where a tensor is.
    pub elastic: Elastic,
    /// Command that explains requests that ran out of memory.
    pub autopsy: Autopsy,
    /// Level of the messages that are written to stderr.
    pub log: Log,
}

/// A variable whose value could not be used as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Name of the variable in the environment.
    pub variable: String,
    /// Value of the variable, as text.
    pub value: String,
    /// The error, and the values that would be accepted.
    pub reason: String,
    /// The value used instead, in words; `None` if there is none.
    pub instead: Option<String>,
}

impl Problem {
    /// Describes the error, the accepted values and the value used instead.
    #[must_use]
    pub fn in_words(&self) -> String {
        match &self.instead {
            Some(instead) => format!("{}; {instead}", self.reason),
            None => self.reason.clone(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}: {}", self.variable, self.value, self.in_words())
    }
}

/// Origin of a value in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The default: the variable is not set, or empty.
    Default,
    /// The value of the variable.
    Environment,
    /// The default: the variable's value could not be used.
    Problem,
}

/// A variable with its value in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Entry of the variable in [`VARIABLES`].
    pub variable: &'static Variable,
    /// Value in force, in the form that the variable accepts.
    pub value: String,
    /// Origin of the value in force.
    pub origin: Origin,
}

/// A configuration with the origin of each value.
///
/// ```
/// use gpushim_config::{Origin, Resolved};
///
/// let resolved = Resolved::from_lookup(|name| (name == "GPUSHIM_PAGE").then(|| "4M".into()));
/// let set = |origin| resolved.settings.iter().filter(move |setting| setting.origin == origin);
/// let names: Vec<_> = set(Origin::Environment).map(|setting| setting.variable.name).collect();
/// assert_eq!(names, ["GPUSHIM_PAGE"]);
/// assert!(resolved.problems.is_empty());
/// ```
#[derive(Clone, Debug)]
pub struct Resolved {
    /// Values in force, as typed fields.
    pub config: Config,
    /// Values in force as text, in the order of [`VARIABLES`].
    pub settings: Vec<Setting>,
    /// Variables whose values could not be used.
    pub problems: Vec<Problem>,
}

impl Config {
    /// Reads the configuration of this process from its environment. Unknown names that begin with
    /// `GPUSHIM_` are problems, too.
    pub fn from_env() -> (Config, Vec<Problem>) {
        let resolved = Resolved::from_env();
        (resolved.config, resolved.problems)
    }

    /// Reads the configuration from any source of values, like [`Config::from_env`]. Unknown names
    /// are not looked for.
    pub fn from_lookup(lookup: impl Fn(&str) -> Option<OsString>) -> (Config, Vec<Problem>) {
        let resolved = Resolved::from_lookup(lookup);
        (resolved.config, resolved.problems)
    }

    /// Path and options of the trace that this process writes; `None` if it writes none.
    pub fn trace_file(&self) -> Option<(PathBuf, WriterOptions)> {
        let pattern = self.trace.as_deref()?;
        let rank = rank(|name| std::env::var_os(name));
        let path = trace_path(pattern, std::process::id(), rank.unwrap_or(0), &host());
        Some((
            path,
            WriterOptions {
                bytes: self.trace_size,
                rank,
                facts: self.trace_facts,
                ..WriterOptions::default()
            },
        ))
    }
}

impl Resolved {
    /// Reads the configuration from the environment of this process.
    pub fn from_env() -> Resolved {
        let mut resolved = Resolved::from_lookup(|name| std::env::var_os(name));
        let unknown = std::env::vars_os().filter_map(|(name, value)| {
            let name = name.to_str()?;
            let known = VARIABLES.iter().any(|variable| variable.name == name);
            (name.starts_with("GPUSHIM_") && !known).then(|| Problem {
                variable: name.to_string(),
                value: value.to_string_lossy().into_owned(),
                reason: "no such variable; `gpushim config` lists them".to_string(),
                instead: None,
            })
        });
        resolved.problems.extend(unknown);
        resolved
    }

    /// Reads the configuration from any source of values.
    pub fn from_lookup(lookup: impl Fn(&str) -> Option<OsString>) -> Resolved {
        let mut source = Source {
            lookup,
            settings: Vec::new(),
            problems: Vec::new(),
        };
        let mut config = Config {
            enabled: source.get(&variables::ENABLED, values::switch),
            policy: source.get(&variables::POLICY, values::policy),
            reuse: source.get(&variables::REUSE, Reuse::parse),
            limit: source.get(&variables::LIMIT, values::limit),
            limit_scope: source.get(&variables::LIMIT_SCOPE, values::limit_scope),
            limit_required: source.get(&variables::LIMIT_REQUIRED, values::switch),
            cache_max: source.get(&variables::CACHE_MAX, values::cache_max),
            decay: source.get(&variables::DECAY, values::decay),
            page: source.get(&variables::PAGE, values::page),
            trace: source.get(&variables::TRACE, values::trace),
            trace_size: source.get(&variables::TRACE_SIZE, values::trace_size),
            trace_mode: source.get(&variables::TRACE_MODE, values::trace_mode),
            trace_facts: source.get(&variables::TRACE_FACTS, values::trace_facts),
            spool_size: source.get(&variables::SPOOL_SIZE, values::optional_amount),
            spool_floor: source.get(&variables::SPOOL_FLOOR, amount),
            stacks: source.get(&variables::STACKS, values::stacks),
            python: source.get(&variables::PYTHON, values::switch),
            owners: source.get(&variables::OWNERS, values::announcements),
            nvtx: source.get(&variables::NVTX, values::announcements),
            tensors: source.get(&variables::TENSORS, values::announcements),
            takeover: source.get(&variables::TAKEOVER, values::takeover),
            elastic: source.get(&variables::ELASTIC, values::elastic),
            autopsy: source.get(&variables::AUTOPSY, values::autopsy),
            log: source.get(&variables::LOG, values::log),
        };
        if config.autopsy != Autopsy::Off {
            // Without stacks the explanation cannot name who made the request, and who held the
            // memory.
            source.set_unless_given(&variables::STACKS, "all", || config.stacks = Stacks::All);
        }
        Resolved {
            config,
            settings: source.settings,
            problems: source.problems,
        }
    }
}

struct Source<L> {
    lookup: L,
    settings: Vec<Setting>,
    problems: Vec<Problem>,
}

impl<L: Fn(&str) -> Option<OsString>> Source<L> {
    /// Replaces the value of a variable that has its default; `set` does the same in the
    /// configuration.
    fn set_unless_given(&mut self, variable: &Variable, value: &str, set: impl FnOnce()) {
        let mut settings = self.settings.iter_mut();
        let setting = settings.find(|one| one.variable.name == variable.name);
        if let Some(setting) = setting.filter(|one| one.origin == Origin::Default) {
            setting.value = value.to_string();
            set();
        }
    }

    /// Returns the value of a variable. The same parser reads its default.
    fn get<T: Default>(&mut self, variable: &'static Variable, parse: fn(&str) -> Option<T>) -> T {
        // A test checks that every default parses.
        let default = || parse(variable.default).unwrap_or_default();
        let raw = (self.lookup)(variable.name).filter(|raw| !raw.is_empty());
        let Some(raw) = raw else {
            self.settings.push(Setting {
                variable,
                value: variable.default.to_string(),
                origin: Origin::Default,
            });
            return default();
        };
        let text = raw.to_string_lossy();
        let text = text.trim();
        let parsed = match raw.to_str() {
            Some(_) => parse(text)
                .map(|value| (value, text))
                .or_else(|| values::in_other_words(text, parse)),
            None => None,
        };
        let (value, in_force, reason) = match parsed {
            Some((value, word)) => (value, word.to_string(), None),
            None => {
                let reason = format!("expected {}", variable.accepts);
                (default(), variable.default.to_string(), Some(reason))
            }
        };
        let origin = if reason.is_none() {
            Origin::Environment
        } else {
            Origin::Problem
        };
        self.settings.push(Setting {
            variable,
            value: in_force,
            origin,
        });
        self.problems.extend(reason.map(|reason| Problem {
            variable: variable.name.to_string(),
            value: text.to_string(),
            reason,
            instead: Some(format!("using {}", variable.default)),
        }));
        value
    }
}

#[cfg(test)]
mod tests;
