//! `gpushim config`: the settings in force, their origins, and the values that cannot be used.

use std::fmt::Write;

use serde::Serialize;

use crate::cli::outcome::{Format, Outcome};
use crate::cli::terminal::{print_json, print_plain, print_text};
use crate::error::Result;
use crate::output::envelope::Envelope;
use crate::output::escape::shown;
use gpushim_config::{Origin, Resolved, markdown};

/// Print the configuration in force, and the values that cannot be used (exit code 1 if there are any).
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gpushim config
  gpushim config --format json")]
pub struct Args {
    /// The output format.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// Print the documentation of all variables instead.
    #[arg(long, conflicts_with = "format")]
    markdown: bool,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Page {
    settings: Vec<Setting>,
    problems: Vec<Problem>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Setting {
    name: &'static str,
    value: String,
    origin: &'static str,
    default: &'static str,
    accepts: &'static str,
    help: &'static str,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Problem {
    variable: String,
    value: String,
    reason: String,
}

pub fn main(args: &Args) -> Result<Outcome> {
    if args.markdown {
        print_plain(&markdown())?;
        return Ok(Outcome::Fine);
    }
    let resolved = Resolved::from_env();
    let outcome = if resolved.problems.is_empty() {
        Outcome::Fine
    } else {
        Outcome::Found
    };
    match args.format {
        Format::Json => {
            let found = outcome == Outcome::Found;
            print_json(&Envelope::new("config", found, vec![page(resolved)]))?;
        }
        Format::Text => print_text(&text(&resolved)?)?,
    }
    Ok(outcome)
}

const fn origin(origin: Origin) -> &'static str {
    match origin {
        Origin::Default => "default",
        Origin::Environment => "environment",
        Origin::Problem => "problem",
    }
}

fn page(resolved: Resolved) -> Page {
    let setting = |setting: gpushim_config::Setting| Setting {
        name: setting.variable.name,
        value: setting.value,
        origin: origin(setting.origin),
        default: setting.variable.default,
        accepts: setting.variable.accepts,
        help: setting.variable.help,
    };
    let problem = |problem: gpushim_config::Problem| Problem {
        reason: problem.in_words(),
        variable: problem.variable,
        value: problem.value,
    };
    Page {
        settings: resolved.settings.into_iter().map(setting).collect(),
        problems: resolved.problems.into_iter().map(problem).collect(),
    }
}

fn text(resolved: &Resolved) -> Result<String> {
    let mut text = String::new();
    let width = resolved
        .settings
        .iter()
        .map(|setting| shown(&setting.value).chars().count())
        .max()
        .unwrap_or(0);
    for setting in &resolved.settings {
        let (name, value) = (setting.variable.name, shown(&setting.value));
        writeln!(
            text,
            "{name:<20} {value:<width$}  {}",
            origin(setting.origin)
        )?;
    }
    if !resolved.problems.is_empty() {
        writeln!(text, "\nProblems")?;
    }
    for problem in &resolved.problems {
        writeln!(text, "  {}", shown(&problem.to_string()))?;
    }
    Ok(text)
}
