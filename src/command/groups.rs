//! Subcommands grouped by purpose, as `--help` lists them, and the screen that `gpushim` alone
//! shows.

use std::ffi::OsString;
use std::io::{self, Write};

use clap::builder::StyledStr;
use clap::{CommandFactory, ValueEnum};

use super::Cli;
use crate::cli::terminal::{Color, of_stderr};
use crate::output::style::{self, Style};
use crate::output::wrap::paragraph;

/// Purposes, and the subcommands for each with a description in a few words.
const GROUPS: [(&str, &[(&str, &str)]); 6] = [
    (
        "Record",
        &[
            (
                "run",
                "run a program, record its GPU memory, say what stood out",
            ),
            (
                "control",
                "pause, resume, mark or copy the recording of a running process",
            ),
        ],
    ),
    (
        "Diagnose",
        &[
            (
                "report",
                "a run on one screen, or which ranks of a job stand out",
            ),
            (
                "oom",
                "why requests ran out of memory, and what would have helped",
            ),
            (
                "growth",
                "does memory grow with each iteration, where, and when is it full",
            ),
            (
                "peak",
                "which stacks held memory at the peak, or at any moment",
            ),
            ("phases", "bytes of each NVTX range and iteration"),
            (
                "fragmentation",
                "reserved memory that cannot be used, and what pins it",
            ),
            ("diff", "what changed between two runs"),
            ("check", "limits and a baseline, for CI"),
        ],
    ),
    (
        "Look",
        &[
            ("top", "running processes, live"),
            ("timeline", "memory over time, as a plot"),
            ("html", "all of it as one page for a browser"),
            ("events", "single allocations and frees, filtered"),
        ],
    ),
    (
        "Tune",
        &[
            (
                "tune",
                "the settings that need least memory, and what they save",
            ),
            ("replay", "what other allocators would have held"),
        ],
    ),
    (
        "Export",
        &[
            (
                "export",
                "Perfetto, pprof, PyTorch's viewer, Parquet and others",
            ),
            (
                "metrics",
                "figures for Prometheus, as text, a file or over HTTP",
            ),
            (
                "pack",
                "finished traces made small, with names, for other machines",
            ),
        ],
    ),
    (
        "Help",
        &[
            (
                "demo",
                "a sample program with a fault, recorded without a GPU",
            ),
            (
                "doctor",
                "does gpushim work here, or what was hooked in a run",
            ),
            ("config", "the settings in force"),
            ("completions", "completion for a shell"),
            ("man", "manual pages"),
            ("help", "help of a subcommand"),
        ],
    ),
];

/// Screen that is shown if the command has no arguments.
const SCREEN: &str = "\
gpushim records the GPU memory of CUDA programs and finds what is wrong with it.

Record a run, and read what stood out
  gpushim run python train.py       leaves gpushim-HOST-PID.trace here
  gpushim report                    the newest trace here, on one screen

Ask it a question
  gpushim oom                       why did it run out of memory?
  gpushim growth                    does it grow with each iteration, and where?
  gpushim peak                      which functions held memory at the peak?
  gpushim html -o page.html         all of it as one page for a browser

While it runs, and in CI
  gpushim top                       running processes, live
  gpushim check run.trace --max-peak 20G

Traces, PyTorch's memory snapshots and RMM's logs are read alike.
All subcommands: gpushim --help. Does it work here: gpushim doctor
A sample to try it on, without a GPU: gpushim demo
";

/// The command with its subcommands in groups.
pub fn command() -> clap::Command {
    let columns = style::columns().unwrap_or(100).min(100);
    let groups = StyledStr::from(list(columns, style::is_coloured()));
    Cli::command()
        .help_template(
            "{about-with-newline}\n{usage-heading} {usage}{after-help}\n\nOptions:\n{options}",
        )
        .after_help(groups)
}

/// All groups, in lines of at most this many characters.
fn list(columns: usize, is_coloured: bool) -> String {
    let all = GROUPS
        .iter()
        .flat_map(|(_, subcommands)| subcommands.iter());
    let width = all.map(|(name, _)| name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for (group, subcommands) in &GROUPS {
        text.push_str(&Style::Heading.paint(&format!("{group}:"), is_coloured));
        text.push('\n');
        for (name, what) in *subcommands {
            let label = format!("  {name:<width$}  ");
            let lines = paragraph(&label, what, columns);
            let (name, rest) = lines.split_at(2 + name.len());
            text.push_str(&Style::Good.paint(name, is_coloured));
            text.push_str(rest);
        }
        text.push('\n');
    }
    text
}

/// Prints on stderr which command to type.
pub fn say_what_to_type() {
    Color::Auto.set();
    let is_coloured = of_stderr().is_coloured;
    let mut text = String::new();
    let next = SCREEN.lines().skip(1).chain([""]);
    for (line, next) in SCREEN.lines().zip(next) {
        let is_heading = !line.starts_with(' ') && next.starts_with(' ');
        let painted = match is_heading {
            true => Style::Heading.paint(line, is_coloured),
            false => line.to_string(),
        };
        text.push_str(&painted);
        text.push('\n');
    }
    // An error of stderr cannot be reported.
    let _ = io::stderr().write_all(text.as_bytes());
}

/// Value of `--color`, found before the words are parsed, because the parser's own output follows
/// it, too.
pub fn color_in(words: &[OsString]) -> Color {
    let run = words.iter().position(|word| word == "run");
    let ours = words.get(..run.unwrap_or(words.len())).unwrap_or_default();
    let values = ours.iter().enumerate().filter_map(|(index, word)| {
        let word = word.to_str()?;
        match word.strip_prefix("--color=") {
            Some(value) => Some(value),
            None if word == "--color" => ours.get(index + 1)?.to_str(),
            None => None,
        }
    });
    let mut parsed = values.filter_map(|value| Color::from_str(value, false).ok());
    parsed.next_back().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_subcommand_is_in_one_group() {
        let command = Cli::command();
        let mut ours: Vec<&str> = command
            .get_subcommands()
            .map(clap::Command::get_name)
            .collect();
        ours.push("help");
        ours.sort_unstable();
        let grouped = GROUPS.iter().flat_map(|(_, all)| all.iter());
        let mut grouped: Vec<&str> = grouped.map(|(name, _)| *name).collect();
        grouped.sort_unstable();
        assert_eq!(grouped, ours);
    }

    #[test]
    fn the_list_fits_any_terminal() {
        for columns in [50, 80, 100] {
            for line in list(columns, false).lines() {
                assert!(line.chars().count() <= columns, "{columns}: {line:?}");
            }
        }
        let help = command().render_help().to_string();
        let order = [
            "Record:",
            "Diagnose:",
            "Look:",
            "Tune:",
            "Export:",
            "Help:",
            "Options:",
        ];
        let places = order.map(|heading| help.find(heading));
        assert!(
            places.iter().all(Option::is_some) && places.is_sorted(),
            "{help}"
        );
    }

    #[test]
    fn one_screen_of_what_to_type() {
        assert!(SCREEN.lines().count() <= 24);
        assert!(SCREEN.lines().all(|line| line.chars().count() <= 80));
        for line in SCREEN.lines().filter_map(|line| line.strip_prefix("  ")) {
            let line = line.split("   ").next().unwrap_or_default();
            let parsed = command().try_get_matches_from(line.split_whitespace());
            assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
        }
    }

    #[test]
    fn colours_are_known_before_the_words_are_parsed() {
        let of = |line: &str| {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            color_in(&words)
        };
        assert_eq!(of("gpushim --color never report"), Color::Never);
        assert_eq!(of("gpushim report --color=always"), Color::Always);
        assert_eq!(of("gpushim run x --color=always"), Color::Auto);
        assert_eq!(
            of("gpushim --color never run x --color=always"),
            Color::Never
        );
        assert_eq!(of("gpushim report --color odd"), Color::Auto);
    }
}
