//! `gpushim doctor`: calls that gpushim can see on this machine, and calls that it saw in a run.

use std::fmt::Write;
use std::path::PathBuf;

use serde::Serialize;

use super::check::{Check, Verdict};
use super::{limits, machine, takeover, trace};
use crate::cli::outcome::{Format, Outcome};
use crate::cli::terminal::{print_json, print_text};
use crate::error::Result;
use crate::output::envelope::Envelope;
use crate::output::escape::shown;
use crate::output::style::{self, Style, marked};
use crate::output::wrap::paragraph;
use crate::recording;

/// Check whether gpushim works on this machine, or with a trace what it hooked in that run (exit
/// code 1 on problems).
///
/// Of this machine, what is sound is one line, and the limits of gpushim come with --all.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gpushim doctor                             # this machine
  gpushim doctor --all                       # all checks, and what gpushim cannot do on any machine
  gpushim doctor --python venv/bin/python    # and whether stacks will have this Python's functions
  gpushim doctor train.trace                 # what was hooked in that run")]
pub struct Args {
    /// A trace file, also compressed by gzip; the machine is examined if none is named.
    file: Option<PathBuf>,
    /// The Python whose functions are to be recorded; python3 unless given.
    #[arg(long, value_name = "FILE", conflicts_with = "file")]
    python: Option<PathBuf>,
    /// Show the details of each check, and what cannot be seen on any machine.
    #[arg(long)]
    all: bool,
    /// The output format.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Checks {
    checks: Vec<Check>,
    /// Calls that are not seen on any machine, with the reason.
    limits: Vec<limits::Limit>,
    /// Limits of frameworks that were taken over.
    takeover_limits: Vec<takeover::Limit>,
}

pub fn main(args: &Args) -> Result<Outcome> {
    let (checks, limits, takeover_limits) = match &args.file {
        Some(path) => {
            let trace = recording::open_trace(path)?;
            (trace::checks(&trace), Vec::new(), Vec::new())
        }
        None => (
            machine::checks(args.python.as_deref()),
            limits::LIMITS.to_vec(),
            takeover::limits(),
        ),
    };
    let sound = checks.iter().all(|check| check.verdict != Verdict::Problem);
    let findings = Checks {
        checks,
        limits,
        takeover_limits,
    };
    match args.format {
        Format::Json => print_json(&Envelope::new("doctor", !sound, vec![findings]))?,
        Format::Text if args.all || args.file.is_some() => print_text(&text(&findings)?)?,
        Format::Text => print_text(&brief(&findings))?,
    }
    Ok(if sound { Outcome::Fine } else { Outcome::Found })
}

/// Formats what is not sound, problems first, and the rest as one line.
fn brief(findings: &Checks) -> String {
    let of = |verdict| {
        let checks = findings.checks.iter();
        checks.filter(move |check| check.verdict == verdict)
    };
    let told: Vec<&Check> = of(Verdict::Problem).chain(of(Verdict::Note)).collect();
    let sound: Vec<String> = of(Verdict::Ok)
        .map(|check| shown(check.what.as_ref()))
        .collect();
    let label = marked(Style::Good, &format!("{:<8}", "ok"));
    let sound = paragraph(
        &format!("{label} "),
        &sound.join(", "),
        style::columns().unwrap_or(usize::MAX),
    );
    format!(
        "{}{sound}\nDetails, and what cannot be seen on any machine: gpushim doctor --all\n",
        lines(told)
    )
}

/// Formats checks, each with its detail.
fn lines<'a>(checks: impl IntoIterator<Item = &'a Check, IntoIter: Clone>) -> String {
    let mut text = String::new();
    let checks = checks.into_iter();
    let width = (checks.clone())
        .map(|check| shown(check.what.as_ref()).chars().count())
        .max()
        .unwrap_or(0);
    for check in checks {
        let (verdict, style) = match check.verdict {
            Verdict::Ok => ("ok", Style::Good),
            Verdict::Note => ("note", Style::Warn),
            Verdict::Problem => ("PROBLEM", Style::Bad),
        };
        let verdict = marked(style, &format!("{verdict:<8}"));
        let label = format!("{verdict} {:<width$}  ", shown(check.what.as_ref()));
        let columns = style::columns().unwrap_or(usize::MAX);
        text.push_str(&paragraph(&label, &shown(&check.detail), columns));
    }
    text
}

fn text(findings: &Checks) -> Result<String> {
    let mut text = lines(&findings.checks);
    if !findings.limits.is_empty() {
        let title = marked(Style::Heading, "Not seen, on any machine");
        writeln!(text, "\n{title}")?;
    }
    for limit in &findings.limits {
        writeln!(text, "  {}: {}", limit.what, limit.why)?;
    }
    if !findings.takeover_limits.is_empty() {
        let title = marked(
            Style::Heading,
            "What frameworks cannot do under GPUSHIM_TAKEOVER",
        );
        writeln!(text, "\n{title}")?;
    }
    for limit in &findings.takeover_limits {
        writeln!(
            text,
            "  {}, {}: {}",
            limit.framework, limit.what, limit.instead
        )?;
    }
    Ok(text)
}
