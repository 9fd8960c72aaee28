//! The configuration of gpushim: `GPUSHIM_*` environment variables, each defined once in [`VARIABLES`].
//!
//! [`Config`] has the values in force, typed; [`Resolved`] has them as text too, each with its origin, as `gpushim config`
//! prints them. A value that cannot be parsed never stops a program: it becomes a [`Problem`], which is one line for
//! stderr, and the default is used. [`takeover`] decides which variables point a framework at stream-ordered allocations;
//! [`trace_path`] makes the path of a process's trace from a pattern. `docs/configuration.md` is generated from the same
//! table, by [`markdown`].
//!
//! ```
//! use gpushim_config::Config;
//!
//! let (config, problems) = Config::from_lookup(|name| match name {
//!     "GPUSHIM_LIMIT" => Some("512M".into()),
//!     "GPUSHIM_DECAY" => Some("soon".into()),
//!     _ => None,
//! });
//! assert_eq!(config.limit, Some(512 << 20));
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
    Announcements, Autopsy, Elastic, Log, Stacks, Takeover, TraceMode, duration, size,
};
pub use variables::{AUTOPSY, LIBRARY, NVTX, TAKEOVER, VARIABLES, Variable, markdown};

/// What is in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The source of device memory, for `cudaMalloc` and for stream-ordered allocations.
    pub policy: Policy,
    /// What makes a freed block safe to hand out again.
    pub reuse: Reuse,
    /// Bytes that the process may hold per device; `None` for no limit of ours.
    pub limit: Option<u64>,
    /// Bytes that the cache may hold per device; `None` leaves it to the policy.
    pub cache_max: Option<u64>,
    /// After this time unasked for, cached memory goes back to the driver; zero for never.
    pub decay: Duration,
    /// Bytes of a page of the policy `vmm`: a power of two, at least 2 MiB.
    pub page: u64,
    /// Pattern of the trace's path; `None` for no trace.
    pub trace: Option<String>,
    /// Bytes of the event ring.
    pub trace_size: u64,
    /// What the trace keeps.
    pub trace_mode: TraceMode,
    /// Which facts about the process the trace contains.
    pub trace_facts: Facts,
    /// Bytes that the spooled events may take; `None` for no limit.
    pub spool_size: Option<u64>,
    /// Free bytes that spooling leaves on the disk.
    pub spool_floor: u64,
    /// Which allocations get a stack.
    pub stacks: Stacks,
    /// Whether stacks have Python's functions.
    pub python: bool,
    /// Records who keeps each block, or not.
    pub owners: Announcements,
    /// Whether ranges and marks are listened to.
    pub nvtx: Announcements,
    /// Whether frameworks' own allocations are listened to.
    pub tensors: Announcements,
    /// Which frameworks are pointed at the stream-ordered API.
    pub takeover: Takeover,
    /// Whether the segments of PyTorch's own allocator have memory only where a tensor is.
    pub elastic: Elastic,
    /// The command that explains requests that ran out of memory.
    pub autopsy: Autopsy,
    /// What is written to stderr.
    pub log: Log,
}

/// A variable whose value could not be used as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The variable.
    pub variable: String,
    /// Its value, as text.
    pub value: String,
    /// What is wrong, and what would be accepted.
    pub reason: String,
    /// What is done instead; `None` if nothing is.
    pub instead: Option<String>,
}

impl Problem {
    /// What is wrong, what would be accepted, and what is done instead.
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

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The variable is not set, or empty.
    Default,
    /// The variable says so.
    Environment,
    /// The variable says something else, which could not be used.
    Problem,
}

/// One variable as it is in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The variable.
    pub variable: &'static Variable,
    /// Its value in force, as one would write it.
    pub value: String,
    /// Where the value comes from.
    pub origin: Origin,
}

/// A configuration with the way by which it came about.
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
    /// What is in force.
    pub config: Config,
    /// The same as text, in the order of [`VARIABLES`].
    pub settings: Vec<Setting>,
    /// What could not be used.
    pub problems: Vec<Problem>,
}

impl Config {
    /// The configuration of this process, from its environment, where unknown names that begin
    /// with `GPUSHIM_` are problems too.
    pub fn from_env() -> (Config, Vec<Problem>) {
        let resolved = Resolved::from_env();
        (resolved.config, resolved.problems)
    }

    /// As [`Config::from_env`], from any source of values.
    pub fn from_lookup(lookup: impl Fn(&str) -> Option<OsString>) -> (Config, Vec<Problem>) {
        let resolved = Resolved::from_lookup(lookup);
        (resolved.config, resolved.problems)
    }

    /// Where this process writes its trace, and how; `None` if it writes none.
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
    /// From the environment of this process.
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

    /// From any source of values.
    pub fn from_lookup(lookup: impl Fn(&str) -> Option<OsString>) -> Resolved {
        let mut source = Source {
            lookup,
            settings: Vec::new(),
            problems: Vec::new(),
        };
        let mut config = Config {
            policy: source.get(&variables::POLICY, values::policy),
            reuse: source.get(&variables::REUSE, Reuse::parse),
            limit: source.get(&variables::LIMIT, values::limit),
            cache_max: source.get(&variables::CACHE_MAX, values::cache_max),
            decay: source.get(&variables::DECAY, values::decay),
            page: source.get(&variables::PAGE, values::page),
            trace: source.get(&variables::TRACE, values::trace),
            trace_size: source.get(&variables::TRACE_SIZE, values::trace_size),
            trace_mode: source.get(&variables::TRACE_MODE, values::trace_mode),
            trace_facts: source.get(&variables::TRACE_FACTS, values::trace_facts),
            spool_size: source.get(&variables::SPOOL_SIZE, values::limit),
            spool_floor: source.get(&variables::SPOOL_FLOOR, size),
            stacks: source.get(&variables::STACKS, values::stacks),
            python: source.get(&variables::PYTHON, values::python),
            owners: source.get(&variables::OWNERS, values::announcements),
            nvtx: source.get(&variables::NVTX, values::announcements),
            tensors: source.get(&variables::TENSORS, values::announcements),
            takeover: source.get(&variables::TAKEOVER, values::takeover),
            elastic: source.get(&variables::ELASTIC, values::elastic),
            autopsy: source.get(&variables::AUTOPSY, values::autopsy),
            log: source.get(&variables::LOG, values::log),
        };
        if config.autopsy != Autopsy::Off {
            // Without stacks it could not say who asked, and who held the rest.
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
    /// Puts another value in the place of a default that is in force; `set` does the same in the
    /// configuration.
    fn set_unless_given(&mut self, variable: &Variable, value: &str, set: impl FnOnce()) {
        let mut settings = self.settings.iter_mut();
        let setting = settings.find(|one| one.variable.name == variable.name);
        if let Some(setting) = setting.filter(|one| one.origin == Origin::Default) {
            setting.value = value.to_string();
            set();
        }
    }

    /// The value of a variable, by the same parser as its default.
    fn get<T: Default>(&mut self, variable: &'static Variable, parse: fn(&str) -> Option<T>) -> T {
        // A test parses every default.
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
        let parsed = if raw.to_str().is_some() {
            parse(text.trim())
        } else {
            None
        };
        let (value, in_force, reason) = match parsed {
            Some(value) => (value, text.trim().to_string(), None),
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
            value: text.into_owned(),
            reason,
            instead: Some(format!("using {}", variable.default)),
        }));
        value
    }
}

#[cfg(test)]
mod tests;
