//! `gpushim run`: a command with the library preloaded.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;
use std::process::Command;

use super::child::{self, End};
use super::preloadable::refuse_without_limit;
use super::summary::Summary;
use super::traces;
use super::{afterwards, killer};
use crate::cli::library;
use crate::cli::outcome::Outcome;
use crate::cli::terminal::{of_stderr, say, say_lines};
use crate::compress;
use crate::error::{Result, failed};
use crate::fleet::{self, RankSummary};
use crate::function_names;
use crate::recording;
use gpushim_config::{AUTOPSY, Autopsy, Resolved, rank};

/// Run a program and record its GPU memory, with the call stack of each allocation; when it ends,
/// say what stood out.
///
/// The program's memory comes from the driver, as natively, unless an option or a variable asks for
/// gpushim's pool: --pool, --policy, --limit, --takeover, --elastic, --reuse, --cache-max or --decay.
///
/// What follows the program's name is its own. Signals, exit code and terminal are the program's, as if
/// it ran alone. Each rank of a job (torchrun, mpirun, srun) writes its own trace, and rank 0 names the
/// findings of all traces that it can read.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gpushim run python train.py
  gpushim run --no-stacks ./solver --steps 100        # a little faster, without the functions
  gpushim run --takeover torch python train.py        # PyTorch's tensors from our pool
  gpushim run --limit 20G -o out/%h-%p.trace ./solver
  gpushim run torchrun --nproc-per-node 8 train.py    # or: srun gpushim run python train.py")]
pub struct Args {
    /// Serve cudaMalloc and cudaMallocAsync from gpushim's pool; the same as --policy auto.
    #[arg(long, conflicts_with = "policy")]
    pool: bool,
    /// The allocation policy; off, which only records, unless a pool is asked for (GPUSHIM_POLICY).
    #[arg(long)]
    policy: Option<OsString>,
    /// Order of a freed block's next use (GPUSHIM_REUSE).
    #[arg(long)]
    reuse: Option<OsString>,
    /// The most device memory that the process may hold (GPUSHIM_LIMIT).
    #[arg(long, value_name = "SIZE")]
    limit: Option<OsString>,
    /// The processes that share the limit: process, container, job, user or a path
    /// (GPUSHIM_LIMIT_SCOPE).
    #[arg(long, value_name = "SCOPE", requires = "limit")]
    limit_scope: Option<OsString>,
    /// The most freed memory that is kept for reuse (GPUSHIM_CACHE_MAX).
    #[arg(long, value_name = "SIZE")]
    cache_max: Option<OsString>,
    /// After which time unused cached memory is returned to the driver (GPUSHIM_DECAY).
    #[arg(long, value_name = "TIME")]
    decay: Option<OsString>,
    /// The path of the trace, with %p pid, %r rank, %h host; or off (GPUSHIM_TRACE). Missing folders
    /// are made.
    #[arg(short = 'o', long, value_name = "PATTERN")]
    trace: Option<OsString>,
    /// Size of the trace's event ring (GPUSHIM_TRACE_SIZE).
    #[arg(long, value_name = "SIZE")]
    trace_size: Option<OsString>,
    /// Events that the trace keeps: full (all, the default here) or ring (the newest) (GPUSHIM_TRACE_MODE).
    #[arg(long, value_name = "MODE")]
    trace_mode: Option<OsString>,
    /// The most bytes of disk for all events of a process; 4G unless given; none (GPUSHIM_SPOOL_SIZE).
    #[arg(long, value_name = "SIZE")]
    spool_size: Option<OsString>,
    /// Leave the trace as it was written when the program ends: it is packed otherwise, under the
    /// same name.
    #[arg(long)]
    no_pack: bool,
    /// Attach no summary to the traces, for `gpushim report DIR`, when the program ends.
    #[arg(long)]
    no_summary: bool,
    /// Allocations that get a call stack: all (the default), a size, 1/N, or off (GPUSHIM_STACKS).
    #[arg(
        long,
        value_name = "WHICH",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "all"
    )]
    stacks: Option<OsString>,
    /// Record no call stacks: the same as --stacks=off.
    #[arg(long, conflicts_with = "stacks")]
    no_stacks: bool,
    /// Python's functions in stacks; recorded unless `off` (GPUSHIM_PYTHON).
    #[arg(
        long,
        value_name = "on|off",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "on"
    )]
    python: Option<OsString>,
    /// Record who keeps each block, by the names of a Python program; auto unless `off` (GPUSHIM_OWNERS).
    #[arg(long, value_name = "auto|off")]
    owners: Option<OsString>,
    /// Record frameworks' own allocations (GPUSHIM_TENSORS).
    #[arg(long)]
    tensors: Option<OsString>,
    /// Frameworks to point at stream-ordered allocations: torch, jax, tf; without a value: all
    /// (GPUSHIM_TAKEOVER).
    #[arg(
        long,
        value_name = "LIST",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "all"
    )]
    takeover: Option<OsString>,
    /// Give PyTorch's own segments memory only where a tensor is; without a value: auto (GPUSHIM_ELASTIC).
    #[arg(
        long,
        value_name = "off|auto|on",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "auto"
    )]
    elastic: Option<OsString>,
    /// Messages written to stderr (GPUSHIM_LOG).
    #[arg(long)]
    log: Option<OsString>,
    /// Say nothing when the program ends.
    #[arg(short, long)]
    quiet: bool,
    /// The program and its arguments.
    #[arg(
        value_name = "PROGRAM",
        trailing_var_arg = true,
        allow_hyphen_values = true,
        required = true
    )]
    command: Vec<OsString>,
}

impl Args {
    fn options(&self) -> [(&'static str, &Option<OsString>); 17] {
        [
            ("GPUSHIM_POLICY", &self.policy),
            ("GPUSHIM_REUSE", &self.reuse),
            ("GPUSHIM_LIMIT", &self.limit),
            ("GPUSHIM_LIMIT_SCOPE", &self.limit_scope),
            ("GPUSHIM_CACHE_MAX", &self.cache_max),
            ("GPUSHIM_DECAY", &self.decay),
            ("GPUSHIM_TRACE", &self.trace),
            ("GPUSHIM_TRACE_SIZE", &self.trace_size),
            ("GPUSHIM_TRACE_MODE", &self.trace_mode),
            ("GPUSHIM_SPOOL_SIZE", &self.spool_size),
            ("GPUSHIM_STACKS", &self.stacks),
            ("GPUSHIM_PYTHON", &self.python),
            ("GPUSHIM_OWNERS", &self.owners),
            ("GPUSHIM_TENSORS", &self.tensors),
            ("GPUSHIM_TAKEOVER", &self.takeover),
            ("GPUSHIM_ELASTIC", &self.elastic),
            ("GPUSHIM_LOG", &self.log),
        ]
    }

    /// The value of the option for a variable, if it was given.
    fn given(&self, name: &str) -> Option<OsString> {
        if name == STACKS && self.no_stacks {
            return Some("off".into());
        }
        if name == POLICY && self.pool {
            return Some("auto".into());
        }
        let mut options = self.options().into_iter();
        let option = options.find(|(variable, _)| *variable == name);
        option.and_then(|(_, value)| value.clone())
    }

    /// The value of a variable: the option's, or else the environment's, or else the default of
    /// `run`.
    fn value(&self, name: &str) -> Option<OsString> {
        let set = |name: &str| {
            let in_environment = || std::env::var_os(name).filter(|value| !value.is_empty());
            self.given(name).or_else(in_environment)
        };
        set(name).or_else(|| {
            if name == POLICY
                && POOLS
                    .iter()
                    .any(|one| set(one).is_some_and(|it| it != "off"))
            {
                return None;
            }
            let own = DEFAULTS.iter().find(|(variable, _)| *variable == name);
            own.map(|(_, value)| value.into())
        })
    }
}

/// The likeness of two words, 0 to 1, above which one is taken for the other misspelt.
const LIKE: f64 = 0.8;
/// The variable of `--no-stacks`.
const STACKS: &str = "GPUSHIM_STACKS";
/// The variable of `--pool` and `--policy`.
const POLICY: &str = "GPUSHIM_POLICY";
/// The variables that ask for a pool, unless they are `off`.
const POOLS: [&str; 6] = [
    "GPUSHIM_REUSE",
    "GPUSHIM_LIMIT",
    "GPUSHIM_CACHE_MAX",
    "GPUSHIM_DECAY",
    "GPUSHIM_TAKEOVER",
    "GPUSHIM_ELASTIC",
];
/// The variables that `run` sets by itself: no pool, stacks, owners, and all events within a budget
/// of the disk.
const DEFAULTS: [(&str, &str); 5] = [
    (POLICY, "off"),
    (STACKS, "all"),
    ("GPUSHIM_OWNERS", "auto"),
    ("GPUSHIM_TRACE_MODE", "full"),
    ("GPUSHIM_SPOOL_SIZE", "4G"),
];

pub fn main(args: &Args) -> Result<Outcome> {
    let resolved = Resolved::from_lookup(|name| args.value(name));
    refuse_unusable(args, &resolved)?;
    let library = library::find()?;
    let [program, rest @ ..] = args.command.as_slice() else {
        return Err(failed!("run nothing: name a program"));
    };
    if program.as_encoded_bytes().starts_with(b"-") {
        return Err(failed!(
            "use {}: `gpushim run` has no such option{}; `gpushim run --help` lists them",
            Path::new(program).display(),
            meant(&program.to_string_lossy())
        ));
    }
    refuse_python_file(Path::new(program))?;
    refuse_without_limit(Path::new(program), &resolved.config)?;
    let mut command = Command::new(program);
    command.args(rest).env(
        "LD_PRELOAD",
        preload(&library, std::env::var_os("LD_PRELOAD")),
    );
    for (name, _) in args.options() {
        if let Some(value) = args.value(name) {
            command.env(name, value);
        }
    }
    if let Some(own) = autopsy(&resolved) {
        command.env(AUTOPSY.name, own);
    }
    let not_started = |error: io::Error| {
        let program = Path::new(program).display();
        match error.kind() {
            io::ErrorKind::NotFound => {
                failed!("run {program}: there is no such program; check its name, or give its path")
            }
            io::ErrorKind::PermissionDenied => {
                failed!("run {program}: it is not a program that you may run")
            }
            _ => failed!("run {program}: {error}"),
        }
    };
    let pattern = traces::pattern(&resolved.settings)?;
    // One rank speaks for all of a job. Nothing is left to be said of a run without a trace.
    let is_silent = args.quiet || rank(|name| std::env::var_os(name)).is_some_and(|rank| rank > 0);
    let is_on = resolved.config.enabled;
    if !is_on && !is_silent {
        say(&"GPUSHIM=off is set: nothing is recorded");
    }
    let Some(pattern) = pattern.filter(|_| is_on).filter(|pattern| {
        // The program may change its directory; its trace should not.
        command.env("GPUSHIM_TRACE", pattern);
        !(is_silent && args.no_pack && args.no_summary)
    }) else {
        return Err(not_started(child::become_it(&mut command)));
    };
    traces::make_folder(&pattern)?;
    let before = traces::existing(&pattern);
    let kills = killer::kills();
    let (pid, end) = child::run(&mut command).map_err(not_started)?;
    let after = traces::existing(&pattern);
    let written: Vec<_> = after.difference(&before).cloned().collect();
    let stderr = of_stderr();
    let words = afterwards::in_words(end, kills);
    let mut problems = afterwards::conclude(&written, pid, &words);
    let mut summary = (!is_silent || !args.no_summary).then(|| Summary::of(&written, !is_silent));
    let ranks = summary.as_ref().map_or(&[][..], |summary| &summary.ranks);
    for trace in &written {
        let its = ranks
            .iter()
            .find(|(path, _)| path == trace && !args.no_summary);
        let its = its.map(|(_, rank)| rank);
        let problem = finish(trace, !args.no_pack, its).err();
        problems.extend(problem.map(|problem| format!("{problem}; it stays as it was written")));
    }
    if let Some(summary) = summary.as_mut().filter(|_| !is_silent) {
        summary.weigh();
        summary.end = worth_saying(end, !written.is_empty()).then_some(words);
        say_lines(&summary.lines(stderr.width, stderr.is_coloured));
    }
    // The trace is whole, and the program's exit code its own: no error.
    for problem in problems {
        say(&format!("failed to {problem}"));
    }
    Ok(match end {
        End::Code(code) => Outcome::Code(code),
        End::Signal { number, .. } => Outcome::Killed(number),
    })
}

/// Attaches a summary to a trace of which the process has ended, and packs it with the names of its
/// functions, if it is to be packed.
fn finish(trace: &Path, packs: bool, summary: Option<&RankSummary>) -> Result<()> {
    let summary = summary.map(fleet::attachment).transpose()?;
    let mut attachments: Vec<_> = summary.into_iter().collect();
    if packs {
        let opened = recording::open_trace(trace)?;
        let names = function_names::attachment(&opened, &[], |_| ());
        attachments.extend(names.map(|(names, _)| names));
    }
    compress::finish(trace, packs, &attachments)
}

/// Returns true if the end of the program is worth a message. The shell's message is enough for a
/// program that used no GPU.
fn worth_saying(end: End, has_traces: bool) -> bool {
    match end {
        End::Code(code) => code != 0 && has_traces,
        End::Signal { number, .. } => has_traces || number == libc::SIGKILL,
    }
}

/// The command that explains requests out of memory.
///
/// It is this command, unless the user named another one or wants none.
fn autopsy(resolved: &Resolved) -> Option<OsString> {
    match &resolved.config.autopsy {
        Autopsy::Command(path) => Some(path.into()),
        Autopsy::Off if std::env::var_os(AUTOPSY.name).is_some_and(|set| !set.is_empty()) => None,
        Autopsy::Off | Autopsy::Find => std::env::current_exe().ok().map(OsString::from),
    }
}

/// An option whose value cannot be used. Those of the environment are named by the library itself.
fn refuse_unusable(args: &Args, resolved: &Resolved) -> Result<()> {
    let mut problems = resolved.problems.iter();
    let Some(problem) = problems.find(|problem| args.given(&problem.variable).is_some()) else {
        return Ok(());
    };
    let option = problem
        .variable
        .trim_start_matches("GPUSHIM_")
        .to_lowercase()
        .replace('_', "-");
    Err(failed!(
        "use --{option} {}: {}",
        problem.value,
        problem.reason
    ))
}

/// The option that a word without its `=VALUE` is most like, in words; empty if none is like it.
fn meant(word: &str) -> String {
    let word = word.trim_start_matches('-');
    let word = word.split('=').next().unwrap_or_default();
    let command = <Args as clap::Args>::augment_args(clap::Command::new("run"));
    let options = command.get_arguments().filter_map(clap::Arg::get_long);
    let likeness = |option: &&str| strsim::jaro_winkler(option, word);
    let closest = options.max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
    let is_like = |option: &&str| likeness(option) > LIKE;
    let meant = closest
        .filter(is_like)
        .map(|option| format!(" (is --{option} meant?)"));
    meant.unwrap_or_default()
}

/// A file of Python that names no interpreter: the kernel cannot start it, and a shell reads it as
/// its own language.
fn refuse_python_file(program: &Path) -> Result<()> {
    let is_python = program.extension().is_some_and(|is| is == "py");
    let begin = || std::fs::read(program).unwrap_or_default();
    match is_python && program.is_file() && !begin().starts_with(b"#!") {
        true => Err(failed!(
            "run {0}: it is a file of Python, no program; type `gpushim run python {0}`",
            program.display()
        )),
        false => Ok(()),
    }
}

/// The gpushim library first, so that its symbols are found before the symbols of others.
fn preload(library: &Path, existing: Option<OsString>) -> OsString {
    let mut value = library.as_os_str().to_os_string();
    if let Some(existing) = existing.filter(|existing| !existing.is_empty()) {
        value.push(OsStr::new(":"));
        value.push(existing);
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_option_is_named() {
        assert_eq!(meant("--limt"), " (is --limit meant?)");
        assert_eq!(meant("--takover=torch"), " (is --takeover meant?)");
        assert_eq!(meant("--xyz"), "");
    }

    #[test]
    fn a_file_of_python_is_no_program() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).expect("written");
            path
        };
        let plain = write("train.py", "import os\n");
        let error = refuse_python_file(&plain).expect_err("refused").to_string();
        let typed = format!("type `gpushim run python {}`", plain.display());
        assert!(error.ends_with(&typed), "{error}");
        let others = [
            write("a.py", "#!/usr/bin/python3\n"),
            write("train", ""),
            "no.py".into(),
        ];
        assert!(others.iter().all(|path| refuse_python_file(path).is_ok()));
    }

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
