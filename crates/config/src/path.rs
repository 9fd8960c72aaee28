//! Path of a trace: the pattern of `GPUSHIM_TRACE`.

use std::ffi::OsString;
use std::path::PathBuf;

/// Pattern that is used when `GPUSHIM_TRACE` is not set.
pub const DEFAULT_PATTERN: &str = super::variables::TRACE.default;

/// Variables in which launchers set the rank of a process and the number of ranks, the most
/// specific first. Slurm's are last: another launcher in a Slurm job passes its own Slurm variables
/// on to all ranks.
const RANKS: [(&str, &str); 4] = [
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
];

/// Variables in which launchers name a job. torchrun's is `none` unless `--rdzv-id` was given.
const JOBS: [&str; 4] = [
    "SLURM_JOB_ID",
    "PBS_JOBID",
    "LSB_JOBID",
    "TORCHELASTIC_RUN_ID",
];

/// Rank of this process in its job, as set by torchrun, Open MPI, PMI or Slurm.
pub fn rank(lookup: impl Fn(&str) -> Option<OsString>) -> Option<u32> {
    RANKS.iter().find_map(|(rank, _)| number(&lookup, rank))
}

/// Number of ranks in the job of this process, as set by the launcher that gave it its rank.
pub fn world(lookup: impl Fn(&str) -> Option<OsString>) -> Option<u32> {
    let of_rank = |(rank, _): &&(&str, &str)| number(&lookup, rank).is_some();
    let (_, size) = RANKS.iter().find(of_rank)?;
    number(&lookup, size).filter(|size| *size > 0)
}

/// Number or name of the job of this process, as set by Slurm, PBS, LSF or torchrun.
pub fn job(lookup: impl Fn(&str) -> Option<OsString>) -> Option<String> {
    let named = |name: &str| {
        let value = lookup(name)?.to_str()?.trim().to_string();
        (!value.is_empty() && value != "none").then_some(value)
    };
    JOBS.into_iter().find_map(named)
}

fn number(lookup: &impl Fn(&str) -> Option<OsString>, name: &str) -> Option<u32> {
    lookup(name)?.to_str()?.trim().parse().ok()
}

/// Name of this host, `localhost` if it has none.
pub fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    if name.is_empty() {
        "localhost".to_string()
    } else {
        name.to_string()
    }
}

/// True if a text is a pattern: a path in which `%` is followed by `p`, `r`, `h` or `%`.
pub(super) fn is_pattern(text: &str) -> bool {
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        if letter == '\0' || letter == '%' && !matches!(letters.next(), Some('p' | 'r' | 'h' | '%'))
        {
            return false;
        }
    }
    !text.is_empty() && !text.ends_with('/')
}

/// Returns the path that a pattern gives for a process: `%p` its id, `%r` its rank, `%h` its host,
/// `%%` a `%`.
///
/// ```
/// use std::path::Path;
/// use gpushim_config::{rank, trace_path};
///
/// let rank = rank(|name| (name == "SLURM_PROCID").then(|| "3".into()));
/// let path = trace_path("/tmp/%h-%r-%p.trace", 4711, rank.unwrap_or(0), "node7");
/// assert_eq!(path, Path::new("/tmp/node7-3-4711.trace"));
/// ```
pub fn trace_path(pattern: &str, pid: u32, rank: u32, host: &str) -> PathBuf {
    expand(
        pattern,
        &pid.to_string(),
        &rank.to_string(),
        &host.replace('/', "_"),
    )
    .into()
}

fn expand(pattern: &str, pid: &str, rank: &str, host: &str) -> String {
    let mut path = String::with_capacity(pattern.len() + 32);
    let mut letters = pattern.chars();
    while let Some(letter) = letters.next() {
        if letter != '%' {
            path.push(letter);
            continue;
        }
        match letters.next() {
            Some('p') => path.push_str(pid),
            Some('r') => path.push_str(rank),
            Some('h') => path.push_str(host),
            Some('%') => path.push('%'),
            Some(other) => path.extend(['%', other]),
            None => path.push('%'),
        }
    }
    path
}
