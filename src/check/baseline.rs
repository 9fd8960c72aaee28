//! Baseline: figures of a run in a TOML file, for a review and for comparison with later runs.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::outcome::{Outcome, Status};
use crate::compare::{MemoryFigures, RunFigures, allowed, changes};
use crate::error::{Result, failed};
use crate::output::escape::shown;
use crate::output::units::bytes;
use crate::whole::{Readers, write_whole};

/// Version of the file format.
const VERSION: u32 = 1;
/// Difference that is always allowed for a peak or reserved memory: at most this many bytes, and at
/// most 1 % of the baseline. Workspaces of libraries vary by as much.
const LEAST: u64 = 1 << 20;

/// Figures of one or more recordings.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Baseline {
    version: u32,
    /// Figures of one recording, or of one for each rank.
    #[serde(default, rename = "run")]
    runs: Vec<RunFigures>,
    /// Path of the file, for messages.
    #[serde(skip)]
    path: PathBuf,
}

impl Baseline {
    /// Makes a baseline of some runs.
    pub fn of(runs: Vec<RunFigures>) -> Baseline {
        Baseline {
            version: VERSION,
            runs,
            path: PathBuf::new(),
        }
    }

    /// Reads a file from [`Baseline::save`], or one that was edited by hand.
    ///
    /// # Errors
    /// The file cannot be read, is no baseline, or is of another version.
    pub fn load(path: &Path) -> Result<Baseline> {
        let place = path.display();
        let text = fs::read_to_string(path)
            .map_err(|error| failed!("read the baseline {place}: {error}; `gpushim check --save-baseline {place}` writes one"))?;
        let mut baseline: Baseline = toml::from_str(&text).map_err(|error| {
            failed!(
                "read the baseline {place}: {}; `gpushim check --save-baseline {place}` writes it anew",
                error.to_string().trim().replace('\n', " ")
            )
        })?;
        if baseline.version != VERSION {
            return Err(failed!(
                "read the baseline {place}: it is of version {}, not {VERSION}; write it anew with --save-baseline",
                baseline.version
            ));
        }
        baseline.path = path.to_path_buf();
        Ok(baseline)
    }

    /// Writes the baseline to a file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save(&self, path: &Path) -> Result<()> {
        let text = self.to_text();
        write_whole(path, Readers::All, |out| out.write_all(text.as_bytes())).map_err(
            |error: std::io::Error| failed!("write the baseline {}: {error}", path.display()),
        )
    }

    /// Formats the baseline as TOML, with readable sizes in comments.
    fn to_text(&self) -> String {
        let mut text = format!(
            "# GPU memory of a run, in bytes. Made by `gpushim check --save-baseline`; compare with `gpushim check --baseline`.\nversion = {VERSION}\n"
        );
        for run in &self.runs {
            // Writing to a string cannot fail.
            let _ = write_run(run, &mut text);
        }
        text
    }

    /// Compares figures with the baseline. Increases of more than `tolerance`, a part of the old
    /// value, fail.
    pub fn compare(&self, figures: &RunFigures, tolerance: f64) -> Vec<Outcome> {
        let mut all = self.runs.iter();
        let same_rank = all.clone().find(|run| run.rank == figures.rank);
        let Some(before) = same_rank.or_else(|| all.next().filter(|_| self.runs.len() == 1)) else {
            let path = shown(&self.path.display().to_string());
            let text = format!("{path} has no run of this rank");
            return vec![Outcome::unknown("baseline", text)];
        };
        let mut outcomes = Vec::new();
        for device in &figures.devices {
            let words = device.in_words();
            let its = |one: &&MemoryFigures| one.gpu == device.gpu && one.of == device.of;
            let Some(old) = before.devices.iter().find(its) else {
                let name = format!("peak of {words} against the baseline");
                outcomes.push(Outcome {
                    measured: Some(device.peak),
                    ..Outcome::unknown(name, "the baseline has none")
                });
                continue;
            };
            let mut peak = against("peak", &words, device.peak, old.peak, tolerance);
            if peak.status == Status::Failed
                && let Some(more) = grown_holder(old, device)
            {
                peak.text.push_str(&more);
            }
            outcomes.push(peak);
            let (now, then) = (device.reserved, old.reserved);
            outcomes.push(against("reserved", &words, now, then, tolerance));
        }
        for growth in &figures.growth {
            let (now, then) = (growth.per_iteration, before.growth_of(&growth.of));
            let name = format!("growth of {} against the baseline", growth.of);
            let (is, was) = (bytes(now), bytes(then));
            let text = format!("{is} per iteration, {was} in the baseline");
            let most = allowed(then, then, tolerance);
            outcomes.push(Outcome::at_most(name, now, most, text));
        }
        outcomes
    }
}

/// Compares a value with the one of the baseline.
fn against(what: &str, words: &str, measured: u64, before: u64, tolerance: f64) -> Outcome {
    let always = before.saturating_add(LEAST.min(before / 100));
    let most = allowed(before, before, tolerance).max(always);
    let (now, then) = (bytes(measured), bytes(before));
    let text = if measured == before {
        format!("{now}, as in the baseline")
    } else {
        let difference = bytes(measured.abs_diff(before));
        let relation = if measured > before { "more" } else { "less" };
        let percent = (measured as f64 / before.max(1) as f64 - 1.0) * 100.0;
        format!("{now}, {difference} {relation} than the {then} of the baseline ({percent:+.1} %)")
    };
    let name = format!("{what} of {words} against the baseline");
    Outcome::at_most(name, measured, most, text)
}

/// Formats the call site with the largest increase.
fn grown_holder(before: &MemoryFigures, after: &MemoryFigures) -> Option<String> {
    let all = changes(&before.holders, &after.holders);
    let most = all.iter().max_by_key(|change| change.gained())?;
    let gained = most.gained();
    (gained > 0).then(|| format!("; {} more by {}", bytes(gained), most.name))
}

fn write_run(run: &RunFigures, text: &mut String) -> std::fmt::Result {
    writeln!(text, "\n[[run]]")?;
    if let Some(rank) = &run.rank {
        writeln!(text, "rank = {}", quoted(rank))?;
    }
    let sized = |name: &str, value: u64| format!("{name} = {value}  # {}", bytes(value));
    writeln!(text, "{}", sized("leaked", run.leaked))?;
    writeln!(text, "out_of_memory = {}", run.out_of_memory)?;
    for growth in &run.growth {
        writeln!(text, "\n[[run.growth]]\nof = {}", quoted(&growth.of))?;
        writeln!(text, "{}", sized("per_iteration", growth.per_iteration))?;
    }
    for device in &run.devices {
        writeln!(text, "\n[[run.device]]")?;
        if let Some(gpu) = device.gpu {
            writeln!(text, "gpu = {gpu}")?;
        }
        writeln!(text, "of = {}", quoted(&device.of))?;
        writeln!(text, "{}", sized("peak", device.peak))?;
        writeln!(text, "{}", sized("reserved", device.reserved))?;
        for holder in &device.holders {
            writeln!(text, "[[run.device.holder]]\nby = {}", quoted(&holder.name))?;
            writeln!(text, "{}", sized("bytes", holder.bytes))?;
        }
    }
    Ok(())
}

/// Formats a text as a basic string of TOML.
fn quoted(text: &str) -> String {
    let text = shown(text);
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::{Figure, Growth};

    fn figures() -> RunFigures {
        RunFigures {
            rank: Some("3".to_string()),
            devices: vec![MemoryFigures {
                gpu: Some(0),
                of: "tensors".to_string(),
                peak: 500 << 20,
                reserved: 600 << 20,
                holders: vec![
                    Figure::of("`forward net.py:12`", 300 << 20),
                    Figure::of("`a \"b\" \\ c`", 100 << 20),
                ],
                ..MemoryFigures::default()
            }],
            growth: vec![Growth {
                of: "tensors".to_string(),
                per_iteration: 4096,
                text: String::new(),
            }],
            leaked: 0,
            out_of_memory: 1,
            unread: None,
            untold: None,
        }
    }

    #[test]
    fn what_is_saved_is_loaded() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("memory.toml");
        let baseline = Baseline::of(vec![figures()]);
        baseline.save(&path).unwrap();
        let loaded = Baseline::load(&path).unwrap();
        assert_eq!(loaded.runs, baseline.runs);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains("peak = 524288000  # 500.0 MiB"), "{text}");
        assert!(text.len() < 4096);
    }

    #[test]
    fn files_that_are_no_baselines() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("memory.toml");
        for (content, says) in [
            (None, "--save-baseline"),
            (Some("version = 2\n"), "version 2"),
            (Some("verson = 1\n"), "verson"),
            (Some("\u{1}"), "read the baseline"),
        ] {
            if let Some(content) = content {
                fs::write(&path, content).unwrap();
            }
            let error = Baseline::load(&path).unwrap_err().to_string();
            assert!(error.contains(says), "{content:?}: {error}");
            assert!(!error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn only_more_than_the_tolerance_fails() {
        let baseline = Baseline::of(vec![figures()]);
        let check = |peak: u64, growth: u64| {
            let mut now = figures();
            now.devices[0].peak = peak;
            now.devices[0].holders[0].bytes += 20 << 20;
            now.growth[0].per_iteration = growth;
            baseline.compare(&now, 0.02)
        };
        let statuses = |all: &[Outcome]| all.iter().map(|one| one.status).collect::<Vec<_>>();
        use Status::{Failed, Passed};
        assert_eq!(statuses(&check(510 << 20, 4096)), [Passed, Passed, Passed]);
        assert_eq!(statuses(&check(400 << 20, 0)), [Passed, Passed, Passed]);
        let more = check(520 << 20, 4200);
        assert_eq!(statuses(&more), [Failed, Passed, Failed]);
        assert_eq!(
            more[0].text,
            "520.0 MiB, 20.0 MiB more than the 500.0 MiB of the baseline (+4.0 %); 20.0 MiB more by `forward net.py:12`"
        );
    }

    #[test]
    fn a_rank_that_the_baseline_lacks() {
        let mut other = figures();
        other.rank = Some("4".to_string());
        let one = Baseline::of(vec![figures()]);
        assert!(
            one.compare(&other, 0.0).len() > 1,
            "the only run is for all"
        );
        let mut second = figures();
        second.rank = Some("5".to_string());
        let two = Baseline::of(vec![figures(), second]);
        let outcomes = two.compare(&other, 0.0);
        assert_eq!(outcomes[0].status, Status::Unknown);
    }
}
