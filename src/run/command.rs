//! `gpushim run`: a command with the library preloaded.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::child;
use crate::cli::outcome::Outcome;
use crate::cli::terminal::say;
use crate::cli::{files, library};
use crate::error::{Context, Result, failed};
use gpushim_config::{Resolved, Setting};

/// Run a command with gpushim preloaded, and exit with the command's exit code (128 + N for signal N).
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gpushim run -- python train.py
  gpushim run --stacks -- python train.py           # with the functions that allocate
  gpushim run --takeover=torch -- python train.py   # PyTorch's tensors from our pool
  gpushim run --limit 20G --trace out/%h-%p.trace -- ./solver")]
pub struct Args {
    /// The allocation policy (GPUSHIM_POLICY).
    #[arg(long)]
    policy: Option<OsString>,
    /// What makes a freed block safe to hand out again (GPUSHIM_REUSE).
    #[arg(long)]
    reuse: Option<OsString>,
    /// The most device memory that the process may hold (GPUSHIM_LIMIT).
    #[arg(long, value_name = "SIZE")]
    limit: Option<OsString>,
    /// The most freed memory that is kept for reuse (GPUSHIM_CACHE_MAX).
    #[arg(long, value_name = "SIZE")]
    cache_max: Option<OsString>,
    /// After which time unused cached memory is returned to the driver (GPUSHIM_DECAY).
    #[arg(long, value_name = "TIME")]
    decay: Option<OsString>,
    /// The path of the trace, with %p pid, %r rank, %h host; or off (GPUSHIM_TRACE).
    #[arg(long, value_name = "PATTERN")]
    trace: Option<OsString>,
    /// Size of the trace's event ring (GPUSHIM_TRACE_SIZE).
    #[arg(long, value_name = "SIZE")]
    trace_size: Option<OsString>,
    /// Which events the trace keeps: ring (the newest) or full (all) (GPUSHIM_TRACE_MODE).
    #[arg(long, value_name = "MODE")]
    trace_mode: Option<OsString>,
    /// Which allocations get a call stack: off, all, a size, or 1/N; without a value: all (GPUSHIM_STACKS).
    #[arg(
        long,
        value_name = "WHICH",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "all"
    )]
    stacks: Option<OsString>,
    /// Whether stacks have Python's functions; they do unless `off` (GPUSHIM_PYTHON).
    #[arg(
        long,
        value_name = "on|off",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "on"
    )]
    python: Option<OsString>,
    /// Whether frameworks' own allocations are recorded (GPUSHIM_TENSORS).
    #[arg(long)]
    tensors: Option<OsString>,
    /// Frameworks to point at stream-ordered allocations: torch, jax, tf; without a value: all (GPUSHIM_TAKEOVER).
    #[arg(
        long,
        value_name = "LIST",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "all"
    )]
    takeover: Option<OsString>,
    /// What is written to stderr (GPUSHIM_LOG).
    #[arg(long)]
    log: Option<OsString>,
    /// The command and its arguments.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    command: Vec<OsString>,
}

impl Args {
    fn options(&self) -> [(&'static str, &Option<OsString>); 13] {
        [
            ("GPUSHIM_POLICY", &self.policy),
            ("GPUSHIM_REUSE", &self.reuse),
            ("GPUSHIM_LIMIT", &self.limit),
            ("GPUSHIM_CACHE_MAX", &self.cache_max),
            ("GPUSHIM_DECAY", &self.decay),
            ("GPUSHIM_TRACE", &self.trace),
            ("GPUSHIM_TRACE_SIZE", &self.trace_size),
            ("GPUSHIM_TRACE_MODE", &self.trace_mode),
            ("GPUSHIM_STACKS", &self.stacks),
            ("GPUSHIM_PYTHON", &self.python),
            ("GPUSHIM_TENSORS", &self.tensors),
            ("GPUSHIM_TAKEOVER", &self.takeover),
            ("GPUSHIM_LOG", &self.log),
        ]
    }

    /// The value of a variable: the option, or else the environment's.
    fn value(&self, name: &str) -> Option<OsString> {
        let option = self
            .options()
            .into_iter()
            .find(|(variable, _)| *variable == name);
        option
            .and_then(|(_, value)| value.clone())
            .or_else(|| std::env::var_os(name))
    }
}

pub fn main(args: &Args) -> Result<Outcome> {
    let resolved = Resolved::from_lookup(|name| args.value(name));
    // Problems of the environment are printed by the library itself.
    let given = |name: &str| {
        args.options()
            .iter()
            .any(|(variable, value)| *variable == name && value.is_some())
    };
    if let Some(problem) = resolved
        .problems
        .iter()
        .find(|problem| given(&problem.variable))
    {
        let option = problem
            .variable
            .trim_start_matches("GPUSHIM_")
            .to_lowercase()
            .replace('_', "-");
        return Err(failed!(
            "use --{option} {}: {}",
            problem.value,
            problem.reason
        ));
    }
    let library = library::find()?;
    let [program, rest @ ..] = args.command.as_slice() else {
        return Err(failed!("run nothing: name a command"));
    };
    let mut command = Command::new(program);
    command.args(rest).env(
        "LD_PRELOAD",
        preload(&library, std::env::var_os("LD_PRELOAD")),
    );
    for (name, value) in args.options() {
        if let Some(value) = value {
            command.env(name, value);
        }
    }
    let pattern = pattern(&resolved.settings)?;
    if let Some(pattern) = &pattern {
        // The command may change its directory; its trace should not.
        command.env("GPUSHIM_TRACE", pattern);
    }
    let before = pattern.as_deref().map(existing).unwrap_or_default();
    let code = child::run(&mut command).map_err(|error| {
        let program = Path::new(program).display();
        failed!("run {program}: {error}; check its name, or give its path")
    })?;
    if let Some(pattern) = &pattern {
        let written: Vec<_> = existing(pattern).difference(&before).cloned().collect();
        tell(&written);
    }
    Ok(Outcome::Code(code))
}

/// Our library first, so that its symbols are found before those of others.
fn preload(library: &Path, existing: Option<OsString>) -> OsString {
    let mut value = library.as_os_str().to_os_string();
    if let Some(existing) = existing.filter(|existing| !existing.is_empty()) {
        value.push(OsStr::new(":"));
        value.push(existing);
    }
    value
}

/// The pattern in force as an absolute one, `None` if there is to be no trace.
fn pattern(settings: &[Setting]) -> Result<Option<String>> {
    let setting = settings
        .iter()
        .find(|setting| setting.variable.name == "GPUSHIM_TRACE");
    let Some(pattern) = setting
        .map(|setting| setting.value.as_str())
        .filter(|value| *value != "off")
    else {
        return Ok(None);
    };
    if Path::new(pattern).is_absolute() {
        return Ok(Some(pattern.to_string()));
    }
    let current = std::env::current_dir().context("find the current directory")?;
    // A directory whose name is no text cannot be put into a variable's text: leave the pattern as it is.
    let Some(current) = current.to_str() else {
        return Ok(Some(pattern.to_string()));
    };
    Ok(Some(format!(
        "{}/{pattern}",
        current.trim_end_matches('/').replace('%', "%%")
    )))
}

fn existing(pattern: &str) -> BTreeSet<PathBuf> {
    files::matching(pattern).into_iter().collect()
}

/// One line that says which traces there are now, and what to do with them.
fn tell(written: &[PathBuf]) {
    let current = std::env::current_dir().unwrap_or_default();
    let short = |path: &PathBuf| {
        path.strip_prefix(&current)
            .unwrap_or(path)
            .display()
            .to_string()
    };
    match written {
        [] => say(
            &"no trace was written; if the command used GPU memory, `gpushim doctor` finds the cause",
        ),
        [one] => say(&format!("wrote {}; next: gpushim report {0}", short(one))),
        many => {
            let names: Vec<_> = many.iter().map(short).collect();
            say(&format!(
                "wrote {} traces; next: gpushim report {}",
                many.len(),
                names.join(" ")
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_existing_preload_is_kept_behind_ours() {
        let library = Path::new("/a/libgpushim.so");
        assert_eq!(preload(library, None), "/a/libgpushim.so");
        assert_eq!(preload(library, Some("".into())), "/a/libgpushim.so");
        assert_eq!(
            preload(library, Some("/b.so:/c.so".into())),
            "/a/libgpushim.so:/b.so:/c.so"
        );
    }
}
