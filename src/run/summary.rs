//! Summary of a run's findings, in a few lines at its end.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::traces::on_disk;
use crate::cli::files::short;
use crate::cut::shortened;
use crate::fleet::{RankSummary, siblings};
use crate::output::escape::shown;
use crate::output::style::Style;
use crate::output::units::{bytes, count};
use crate::output::wrap::cut_to_lines;
use crate::recording::{self, CallSite};
use crate::report::{Finding, HeldAtPeak, Report};

/// Lines at most, with the one that names the trace.
pub const LINES: usize = 10;
/// Findings that are shown.
const FINDINGS: usize = 2;
/// Lines of a finding at most.
const OF_FINDING: usize = 6;
/// Traces that are looked into: opening more takes longer than a user waits at the end of a run.
const MOST: usize = 64;
/// Most events that are analysed, about four seconds of work. Of traces with more, the ring is
/// analysed. `gpushim report` has no such limit.
const EVENTS: u64 = 1 << 25;
/// Characters of a function's name.
const FUNCTION: usize = 60;
/// Traces that the last line names.
const NAMED: usize = 4;

/// Summary of the traces that a run wrote.
#[derive(Debug)]
pub struct Summary {
    /// Reports of this job or process, in the order of the ranks.
    reports: Vec<Report>,
    /// Ranks of the job that were analysed; 0 if a process has none.
    ranks_of_job: usize,
    /// All traces, also traces that were not analysed.
    traces: Vec<PathBuf>,
    /// Bytes that these take on the disk.
    disk: u64,
    /// The end of the program in words, if the user should know it.
    pub end: Option<String>,
    /// Summary of each trace that was written.
    pub ranks: Vec<(PathBuf, RankSummary)>,
}

impl Summary {
    /// Analyses the traces that a run wrote. A speaker of its job also analyses traces of other
    /// ranks beside them.
    pub fn of(written: &[PathBuf], is_speaker: bool) -> Summary {
        let mut traces = written.to_vec();
        let (mut reports, mut ranks) = (Vec::new(), Vec::new());
        let mut events = 0_u64;
        let mut next = 0;
        while let Some(path) = traces.get(next).cloned().filter(|_| next < MOST) {
            next += 1;
            let Ok(mut recording) = recording::open(&path) else {
                continue;
            };
            if next == 1 && is_speaker {
                let others = siblings::of(&*recording)
                    .into_values()
                    .filter_map(|one| one.trace);
                traces.extend(others.filter(|other| !written.contains(other)));
            }
            let readable = recording.coverage().readable;
            if events.saturating_add(readable) > EVENTS {
                match recording::open_ring(&path) {
                    Ok(newest) => recording = newest,
                    Err(_) => continue,
                }
            }
            events = events.saturating_add(recording.coverage().readable);
            let (report, layers) = Report::with_layers(&*recording, None);
            if written.contains(&path) {
                let its = RankSummary::of(&*recording, &report, &layers);
                ranks.push((path, its));
            }
            reports.push(report);
        }
        let number = |report: &Report| report.process.rank_number();
        reports.sort_by_key(number);
        let numbers: Option<BTreeSet<u64>> = reports.iter().map(number).collect();
        let mut summary = Summary {
            ranks_of_job: numbers.map_or(0, |numbers| numbers.len()),
            disk: 0,
            end: None,
            traces,
            reports,
            ranks,
        };
        summary.weigh();
        summary
    }

    /// Measures again the bytes that the traces take on the disk.
    pub fn weigh(&mut self) {
        self.disk = self.traces.iter().map(|trace| on_disk(trace)).sum();
    }

    /// At most [`LINES`] lines of at most `width` characters. Only the last one, which names files,
    /// may be longer.
    pub fn lines(&self, width: usize, is_coloured: bool) -> Vec<String> {
        let end = self.end.as_ref().map(|end| {
            let how = if end.starts_with("signal") {
                "was killed by"
            } else {
                "ended with"
            };
            let text = format!("gpushim: the program {how} {}", shown(end));
            cut_to_lines(&text, width, 2)
        });
        let end = end.into_iter().flatten();
        let mut lines: Vec<String> = end
            .map(|line| Style::Warn.paint(&line, is_coloured))
            .collect();
        let Some(report) = self.worst() else {
            lines.push(format!("gpushim: {}", self.last()));
            return lines;
        };
        let room = LINES - 2 - lines.len();
        let mut headline = self.headline(report, width);
        if let Some(first) = headline.first_mut() {
            *first = Style::Heading.paint(first, is_coloured);
        }
        lines.append(&mut headline);
        let findings = report.findings.iter().take(FINDINGS);
        let room = (room / findings.len().max(1)).min(OF_FINDING);
        for (index, finding) in findings.enumerate() {
            lines.extend(of_finding(index + 1, finding, room, width, is_coloured));
        }
        if let Some(steady) = report
            .steady
            .as_ref()
            .filter(|_| report.findings.is_empty())
        {
            lines.extend(indented("  ", &shown(steady), width, 2));
        }
        lines.push(Style::Dim.paint(&format!("gpushim: {}", self.last()), is_coloured));
        lines
    }

    /// The report with the most important finding, or else the report of the rank with the highest
    /// peak.
    fn worst(&self) -> Option<&Report> {
        let with = self.reports.iter().filter(|one| !one.findings.is_empty());
        let worst = with.min_by_key(|one| one.findings.first().map(Finding::rank));
        let peak = |one: &&Report| one.peaks.iter().map(|peak| peak.bytes).max();
        let is_job = self.ranks_of_job > 1;
        // The first of several with the same peak.
        let highest = || {
            self.reports
                .iter()
                .rev()
                .filter(|_| is_job)
                .max_by_key(peak)
        };
        worst.or_else(highest).or_else(|| self.reports.first())
    }

    /// The number of findings, and the peak: in one line, or two if there are no findings.
    ///
    /// The function that holds most is left out if it would be cut.
    fn headline(&self, report: &Report, width: usize) -> Vec<String> {
        let (said, holder) = self.headline_in_words(report);
        let said = format!("gpushim: {said}");
        let room = if report.findings.is_empty() { 2 } else { 1 };
        let whole = cut_to_lines(&format!("{said}{holder}"), width, room);
        let is_cut = whole.last().is_some_and(|last| last.ends_with('…'));
        if is_cut && !holder.is_empty() {
            return cut_to_lines(&said, width, room);
        }
        whole
    }

    fn headline_in_words(&self, report: &Report) -> (String, String) {
        let findings = match report.findings.len() {
            0 => "no findings".to_string(),
            1 => "1 finding".to_string(),
            several => format!("{} findings", count(several as u64)),
        };
        let of = match self.reports.len() {
            some if some < self.traces.len() => format!("{some} of {} traces; ", self.traces.len()),
            _ => String::new(),
        };
        let whose = match (self.ranks_of_job, &report.process.rank) {
            (many @ 2.., Some(rank)) => format!("{many} ranks, rank {}: ", shown(rank)),
            _ if self.reports.len() > 1 => format!("{}: ", shown(&short(Path::new(&report.trace)))),
            _ => String::new(),
        };
        let Some(peak) = report.peaks.iter().max_by_key(|peak| peak.bytes) else {
            let none = format!("{of}{whose}{findings}; no GPU memory was allocated");
            return (none, String::new());
        };
        let said = format!(
            "{of}{whose}{findings}; peak {} of {}",
            bytes(peak.bytes),
            peak.of
        );
        (said, holder_in_words(peak))
    }

    /// Names of the traces, and the command to type next.
    fn last(&self) -> String {
        let names: Vec<String> = self.traces.iter().map(|trace| short(trace)).collect();
        let names: Vec<String> = names.iter().map(|name| shown(name)).collect();
        let disk = bytes(self.disk);
        match &names[..] {
            [] => {
                "no trace was written; if the program used GPU memory, `gpushim doctor` finds the cause"
                    .to_string()
            }
            [one] => format!("wrote {one} ({disk} on disk); next: gpushim report {one}"),
            many if many.len() <= NAMED => format!(
                "wrote {} traces ({disk} on disk); next: gpushim report {}",
                many.len(),
                many.join(" ")
            ),
            many => {
                let folder = self.traces.first().and_then(|trace| trace.parent());
                let folder = folder.map(short).filter(|folder| !folder.is_empty());
                format!(
                    "wrote {} traces ({disk} on disk); next: gpushim report {}",
                    count(many.len() as u64),
                    shown(&folder.unwrap_or_else(|| ".".to_string()))
                )
            }
        }
    }
}

/// The function that holds most of a peak; empty if none is known.
fn holder_in_words(peak: &HeldAtPeak) -> String {
    let most = peak.holders.first();
    let most = most.and_then(|most| Some((most.bytes, most.who.function.as_ref()?)));
    let Some((held, function)) = most else {
        return String::new();
    };
    let function = shown(&function.in_a_sentence());
    let function = shortened(&function, FUNCTION);
    format!(", {} of it by `{function}`", bytes(held))
}

/// A text without parentheses, to save space. Names between backticks are kept whole.
fn without_asides(text: &str) -> String {
    let (mut out, mut depth, mut is_name) = (String::with_capacity(text.len()), 0_u32, false);
    for letter in text.chars() {
        match letter {
            '`' => is_name = !is_name,
            '(' if !is_name => {
                if depth == 0 {
                    out.truncate(out.trim_end().len());
                }
                depth += 1;
            }
            ')' if !is_name && depth > 0 => {
                depth -= 1;
                continue;
            }
            _ => {}
        }
        if depth == 0 {
            out.push(letter);
        }
    }
    // A parenthesis that never closes is no aside.
    if depth > 0 { text.to_string() } else { out }
}

/// A finding in at most `room` lines: the fault, its place, who keeps the memory, and the fix.
fn of_finding(
    number: usize,
    finding: &Finding,
    room: usize,
    width: usize,
    is_coloured: bool,
) -> Vec<String> {
    let mut after = Vec::new();
    if let Some(place) = finding.site.as_ref().and_then(CallSite::with_caller) {
        after.extend(indented("     at ", &shown(&place), width, 1));
    }
    if let Some(owner) = finding.kept_by.as_ref().filter(|_| room > 4) {
        after.extend(indented("     kept by ", &shown(owner), width, 1));
    }
    if let Some(fix) = &finding.fix {
        let left = room.saturating_sub(1 + after.len()).min(2);
        let label = "     fix: ";
        let lines = indented(label, &shown(fix), width, left);
        let painted = lines
            .iter()
            .map(|line| Style::Good.paint(line, is_coloured));
        after.extend(painted);
    }
    let style = match finding.kind.is_fault() && finding.sure {
        true => Style::Bad,
        false => Style::Warn,
    };
    let label = format!("  {number}. ");
    let sure = if finding.sure { "" } else { "likely: " };
    let text = format!("{sure}{}", without_asides(&shown(&finding.text)));
    let mut lines = indented(
        &label,
        &text,
        width,
        room.saturating_sub(after.len()).max(1),
    );
    for line in &mut lines {
        *line = style.paint(line, is_coloured);
    }
    lines.extend(after);
    lines
}

/// A text after a label, in at most `most` lines.
fn indented(label: &str, text: &str, width: usize, most: usize) -> Vec<String> {
    let indent = label.chars().count();
    let lines = cut_to_lines(text, width.saturating_sub(indent), most);
    let label = |index: usize| match index {
        0 => label.to_string(),
        _ => " ".repeat(indent),
    };
    let lines = lines.into_iter().enumerate();
    lines.map(|(index, line)| label(index) + &line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::sample::Training;
    use crate::output::style::letters;

    fn summary(leak: u64) -> Summary {
        let how = Training {
            leak,
            has_gpu: true,
            ..Training::default()
        };
        let (folder, trace) = how.record();
        let path = crate::recording::Recording::path(&trace).to_path_buf();
        let summary = Summary::of(&[path], true);
        drop(folder);
        summary
    }

    #[test]
    fn a_leak_in_few_lines_of_any_width() {
        let summary = summary(1 << 20);
        for width in [40, 60, 80, 110, 200] {
            let lines = summary.lines(width, false);
            assert!((3..=LINES).contains(&lines.len()), "{lines:#?}");
            let (last, rest) = lines.split_last().expect("lines");
            assert!(last.contains("on disk); next: gpushim report "), "{last}");
            for line in rest {
                assert!(letters(line) <= width, "{width}: {line:?}");
            }
            assert!(
                rest.iter().any(|line| line.starts_with("  1. ")),
                "{lines:#?}"
            );
        }
        let coloured = summary.lines(80, true);
        assert!(
            coloured.iter().any(|line| line.contains("\u{1b}[")),
            "{coloured:#?}"
        );
    }

    #[test]
    fn how_the_program_ended_comes_first() {
        let mut summary = summary(1 << 20);
        summary.end = Some("signal 9 (SIGKILL): the kernel's out-of-memory killer".to_string());
        let lines = summary.lines(110, false);
        assert!(lines.len() <= LINES, "{lines:#?}");
        let killed = "gpushim: the program was killed by signal 9 (SIGKILL): the kernel's out-of-memory killer";
        assert_eq!(lines[0], killed);
        assert!(lines[1].starts_with("gpushim: 1 finding; "), "{lines:#?}");
        summary.end = Some("exit code 1".to_string());
        let lines = summary.lines(80, false);
        assert_eq!(lines[0], "gpushim: the program ended with exit code 1");
    }

    #[test]
    fn asides_are_left_out() {
        let text =
            "Memory grows by 1 B (29 iterations, by `a(int)` (called by `b`)); half by `f(x) y`.";
        assert_eq!(
            without_asides(text),
            "Memory grows by 1 B; half by `f(x) y`."
        );
        assert_eq!(without_asides("a (b"), "a (b");
        assert_eq!(without_asides("a) b"), "a) b");
    }

    #[test]
    fn without_a_finding_it_says_so() {
        let lines = summary(0).lines(100, false);
        let first = lines.first().map_or("", String::as_str);
        assert!(
            first.starts_with("gpushim: no findings; peak "),
            "{lines:#?}"
        );
        assert!(lines.len() <= 5, "{lines:#?}");
        for width in 40..120 {
            for leak in [0, 1 << 20] {
                let said = summary(leak);
                let said = said
                    .headline(said.worst().expect("a report"), width)
                    .join(" ");
                assert!(
                    said.matches('`').count().is_multiple_of(2),
                    "a cut name: {said}"
                );
            }
        }
        let none = Summary::of(&[], true);
        let lines = none.lines(80, false);
        assert_eq!(lines.len(), 1);
        assert!(
            lines[0].starts_with("gpushim: no trace was written; "),
            "{lines:?}"
        );
    }
}
