//! Types of values, and their parsers.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use gpushim_alloc::Policy;
use gpushim_ledger::Scope;
use gpushim_trace::{Facts, WriterOptions};

use super::path;

/// Selection of allocations that get a stack (`GPUSHIM_STACKS`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stacks {
    /// No stacks are recorded at all.
    #[default]
    Off,
    /// Every allocation has a stack.
    All,
    /// Allocations of at least this many bytes.
    Above(u64),
    /// One allocation in this many.
    OneIn(u32),
}

/// Selection of events that a trace keeps (`GPUSHIM_TRACE_MODE`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TraceMode {
    /// Only the newest events are kept.
    #[default]
    Ring,
    /// All events of the run are kept.
    Full,
}

/// Limit on device memory (`GPUSHIM_LIMIT`), in bytes per device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Most bytes that may be held.
    pub bytes: u64,
    /// Bytes that other processes with the same ledger leave to this one; 0 for none.
    pub guarantee: u64,
}

/// Processes for which a limit holds together (`GPUSHIM_LIMIT_SCOPE`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum LimitScope {
    /// Each process for itself.
    #[default]
    Process,
    /// Processes of the same container.
    Container,
    /// Processes of the same job.
    Job,
    /// Processes of the same user.
    User,
    /// Processes that name this file.
    File(PathBuf),
}

/// Setting for announcements of frameworks and programs (`GPUSHIM_TENSORS`, `GPUSHIM_NVTX`) and for
/// owners (`GPUSHIM_OWNERS`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Announcements {
    /// They are recorded wherever they are announced.
    #[default]
    Auto,
    /// None of them is recorded.
    Off,
}

/// Setting for memory of PyTorch's own segments only where a tensor is (`GPUSHIM_ELASTIC`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Elastic {
    /// Segments are allocations like any other.
    #[default]
    Off,
    /// Memory moves when it is short.
    Auto,
    /// Memory moves before new memory is obtained.
    On,
}

/// Frameworks that are pointed at the stream-ordered API (`GPUSHIM_TAKEOVER`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Takeover {
    /// True if PyTorch is pointed at it.
    pub torch: bool,
    /// True if JAX is pointed at it.
    pub jax: bool,
    /// True if TensorFlow is pointed at it.
    pub tf: bool,
}

/// Command that explains requests which ran out of memory (`GPUSHIM_AUTOPSY`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Autopsy {
    /// Such requests are not explained.
    #[default]
    Off,
    /// The `gpushim` that was installed with the library, or else the one on the `PATH`.
    Find,
    /// The command at this path.
    Command(PathBuf),
}

/// Level of messages to stderr (`GPUSHIM_LOG`). Each level includes the levels before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Log {
    /// No messages are written.
    Off,
    /// Errors that stop gpushim from doing its work.
    Error,
    /// Settings that the user should change.
    #[default]
    Warn,
    /// Facts about gpushim's work, at start and exit.
    Info,
    /// Findings and decisions during the run.
    Debug,
}

/// Parses a size like `512M`, `1.5g`, `2GiB` or `4096` to bytes, with powers of 1024. `None` if it
/// is no size.
///
/// ```
/// use gpushim_config::size;
///
/// assert_eq!(size("1.5g"), Some(3 << 29));
/// assert_eq!(size("many"), None);
/// ```
pub fn size(text: &str) -> Option<u64> {
    let digits = text
        .find(|letter: char| !letter.is_ascii_digit() && letter != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(digits)?;
    let shift = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return None,
    };
    scaled(number, 1 << shift)
}

/// Parses a yes or a no as the variable's own word for it. Returns the value with that word. `None`
/// if the text is neither, or if the variable has no such word.
pub(super) fn in_other_words<T>(
    text: &str,
    parse: fn(&str) -> Option<T>,
) -> Option<(T, &'static str)> {
    let words: &[&'static str] = match text.to_ascii_lowercase().as_str() {
        "yes" | "true" | "on" | "1" => &["on", "all", "auto"],
        "no" | "false" | "off" | "none" | "0" => &["off", "none"],
        _ => return None,
    };
    words.iter().find_map(|word| Some((parse(word)?, *word)))
}

/// Parses a size as [`size`] does, for amounts of memory or disk: fewer bytes than 1 MiB need their
/// unit, since `20` was hardly meant as bytes. `None` if it is no such size.
///
/// ```
/// use gpushim_config::amount;
///
/// assert_eq!((amount("20G"), amount("20b")), (Some(20 << 30), Some(20)));
/// assert_eq!((amount("20"), amount("0")), (None, Some(0)));
/// ```
pub fn amount(text: &str) -> Option<u64> {
    let is_bare = text.ends_with(|letter: char| letter.is_ascii_digit());
    size(text).filter(|bytes| !is_bare || *bytes == 0 || *bytes >= 1 << 20)
}

/// Parses a time like `500ms`, `10s`, `2m` or `1h`; a bare number is seconds. `None` if it is no
/// time.
///
/// ```
/// use std::time::Duration;
///
/// assert_eq!(gpushim_config::duration("500ms"), Some(Duration::from_millis(500)));
/// assert_eq!(gpushim_config::duration("2"), Some(Duration::from_secs(2)));
/// ```
pub fn duration(text: &str) -> Option<Duration> {
    let digits = text
        .find(|letter: char| !letter.is_ascii_digit() && letter != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(digits)?;
    let ms = match unit.trim().to_ascii_lowercase().as_str() {
        "ms" => 1,
        "" | "s" => 1000,
        "m" | "min" => 60_000,
        "h" => 3_600_000,
        _ => return None,
    };
    Some(Duration::from_nanos(scaled(number, ms * 1_000_000)?))
}

/// Multiplies a decimal number by a unit, in integers to lose no precision.
fn scaled(number: &str, unit: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || fraction.len() > 9 || fraction.contains('.') {
        return None;
    }
    let parts = if fraction.is_empty() {
        0
    } else {
        fraction.parse::<u64>().ok()?
    };
    let of = 10_u128.pow(fraction.len() as u32);
    let rest = u64::try_from(u128::from(parts) * u128::from(unit) / of).ok()?;
    whole
        .parse::<u64>()
        .ok()?
        .checked_mul(unit)?
        .checked_add(rest)
}

pub(super) fn policy(text: &str) -> Option<Policy> {
    match text {
        "auto" => Some(Policy::default()),
        _ => Policy::parse(text),
    }
}

impl LimitScope {
    /// Returns the scope of the ledger that holds the limit; `None` for a limit of the process alone.
    /// `lookup` reads the environment.
    ///
    /// # Errors
    /// No launcher names the job; completes "failed to …".
    pub fn ledger(
        &self,
        lookup: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Option<Scope>, String> {
        Ok(Some(match self {
            LimitScope::Process => return Ok(None),
            LimitScope::Container => Scope::Container,
            LimitScope::User => Scope::User,
            LimitScope::File(path) => Scope::File(path.clone()),
            LimitScope::Job => {
                let job = path::job(lookup);
                Scope::Job(job.ok_or("find the job of this process: no launcher names one")?)
            }
        }))
    }
}

pub(super) fn optional_amount(text: &str) -> Option<Option<u64>> {
    match text {
        "none" => Some(None),
        _ => amount(text).filter(|bytes| *bytes > 0).map(Some),
    }
}

impl Limit {
    /// Parses the value of `GPUSHIM_LIMIT`, if it is not `none`.
    ///
    /// ```
    /// use gpushim_config::Limit;
    ///
    /// let (bytes, guarantee) = (20 << 30, 4 << 30);
    /// assert_eq!(Limit::parse("20G,guarantee=4G"), Some(Limit { bytes, guarantee }));
    /// assert_eq!(Limit::parse("4G,guarantee=20G"), None);
    /// ```
    pub fn parse(text: &str) -> Option<Limit> {
        let (limit, part) = text.split_once(',').unwrap_or((text, ""));
        let bytes = amount(limit.trim()).filter(|bytes| *bytes > 0)?;
        let guarantee = match part.trim() {
            "" => 0,
            part => amount(part.strip_prefix("guarantee=")?.trim())?,
        };
        (guarantee <= bytes).then_some(Limit { bytes, guarantee })
    }
}

pub(super) fn limit(text: &str) -> Option<Option<Limit>> {
    match text {
        "none" => Some(None),
        _ => Limit::parse(text).map(Some),
    }
}

pub(super) fn limit_scope(text: &str) -> Option<LimitScope> {
    match text {
        "process" => Some(LimitScope::Process),
        "container" => Some(LimitScope::Container),
        "job" => Some(LimitScope::Job),
        "user" => Some(LimitScope::User),
        _ => text.starts_with('/').then(|| LimitScope::File(text.into())),
    }
}

pub(super) fn cache_max(text: &str) -> Option<Option<u64>> {
    match text {
        "none" => Some(None),
        _ => amount(text).map(Some),
    }
}

pub(super) fn decay(text: &str) -> Option<Duration> {
    match text {
        "off" => Some(Duration::ZERO),
        _ => duration(text).filter(|time| *time > Duration::ZERO),
    }
}

pub(super) fn page(text: &str) -> Option<u64> {
    size(text).filter(|bytes| bytes.is_power_of_two() && (2 << 20..=1 << 30).contains(bytes))
}

pub(super) fn trace(text: &str) -> Option<Option<String>> {
    match text {
        "off" => Some(None),
        _ => path::is_pattern(text).then(|| Some(text.to_string())),
    }
}

pub(super) fn trace_size(text: &str) -> Option<u64> {
    size(text).filter(|bytes| (64 << 10..=WriterOptions::MAX_BYTES).contains(bytes))
}

pub(super) fn stacks(text: &str) -> Option<Stacks> {
    let one_in = |text: &str| {
        text.strip_prefix("1/")?
            .parse()
            .ok()
            .filter(|n| *n > 0)
            .map(Stacks::OneIn)
    };
    match text {
        "off" => Some(Stacks::Off),
        "all" => Some(Stacks::All),
        _ => one_in(text).or_else(|| size(text).map(Stacks::Above)),
    }
}

pub(super) fn trace_mode(text: &str) -> Option<TraceMode> {
    match text {
        "ring" => Some(TraceMode::Ring),
        "full" => Some(TraceMode::Full),
        _ => None,
    }
}

pub(super) fn trace_facts(text: &str) -> Option<Facts> {
    match text {
        "all" => Some(Facts::All),
        "masked" => Some(Facts::Masked),
        "none" => Some(Facts::None),
        _ => None,
    }
}

pub(super) fn switch(text: &str) -> Option<bool> {
    match text {
        "on" => Some(true),
        "off" => Some(false),
        _ => None,
    }
}

pub(super) fn announcements(text: &str) -> Option<Announcements> {
    match text {
        "auto" => Some(Announcements::Auto),
        "off" => Some(Announcements::Off),
        _ => None,
    }
}

pub(super) fn elastic(text: &str) -> Option<Elastic> {
    match text {
        "off" => Some(Elastic::Off),
        "auto" => Some(Elastic::Auto),
        "on" => Some(Elastic::On),
        _ => None,
    }
}

pub(super) fn takeover(text: &str) -> Option<Takeover> {
    let mut takeover = Takeover::default();
    if text == "off" {
        return Some(takeover);
    }
    for name in text.split(',') {
        match name.trim() {
            "all" => (takeover.torch, takeover.jax, takeover.tf) = (true, true, true),
            "torch" => takeover.torch = true,
            "jax" => takeover.jax = true,
            "tf" => takeover.tf = true,
            _ => return None,
        }
    }
    Some(takeover)
}

pub(super) fn autopsy(text: &str) -> Option<Autopsy> {
    match text {
        "off" | "0" => Some(Autopsy::Off),
        "on" | "1" => Some(Autopsy::Find),
        _ => (text.contains('/')).then(|| Autopsy::Command(text.into())),
    }
}

pub(super) fn log(text: &str) -> Option<Log> {
    match text {
        "off" => Some(Log::Off),
        "error" => Some(Log::Error),
        "warn" => Some(Log::Warn),
        "info" => Some(Log::Info),
        "debug" => Some(Log::Debug),
        _ => None,
    }
}
