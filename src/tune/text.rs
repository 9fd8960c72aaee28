//! Text of the report of `gpushim tune`.

use std::fmt;

use super::report::{OfAdvice, OfRecording, Row, TuneReport};
use crate::output::answer::Answer;
use crate::output::escape::shown;
use crate::output::table::{Align, Table};
use crate::output::units::{bytes, count, percent, span};
use gpushim_simulate::tune::size;

impl OfRecording {
    fn text(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.subject.heading(f)?;
        for device in &self.devices {
            write!(
                f,
                "gpu {}: {} requests, at most {} live",
                device.gpu,
                count(device.requests),
                bytes(device.peak_requested)
            )?;
            if let Some(reserved) = device.recorded_reserved {
                write!(f, "; {} were held when it was recorded", bytes(reserved))?;
            }
            writeln!(f)?;
            for sentence in device.odd.sentences() {
                writeln!(f, "  {sentence}")?;
            }
        }
        Ok(())
    }
}

impl Answer for TuneReport {
    const COMMAND: &'static str = "tune";

    /// True if nothing fits into the limit.
    fn is_found(&self) -> bool {
        self.closest.is_some()
    }

    fn text(&self, f: &mut fmt::Formatter<'_>, top: usize) -> fmt::Result {
        for recording in &self.recordings {
            recording.text(f)?;
        }
        if !self.has_requests() {
            return writeln!(f, "There are no requests in it that a pool could serve.");
        }
        if self.tried == 0 {
            return writeln!(f, "There was no time to try anything: see --seconds.");
        }
        if !self.front.is_empty() {
            write!(f, "\n{}", self.table(top))?;
        }
        self.refusals(f, top)?;
        if self.not_tried > 0 {
            let (not, all) = (self.not_tried, self.not_tried + self.tried);
            writeln!(
                f,
                "For {not} of {all} candidates there was no time: see --seconds."
            )?;
        }
        let Some(advice) = &self.advice else {
            return Ok(());
        };
        advice.text(f, self)?;
        if !self.least_limits.is_empty() {
            let limits = self.least_limits.iter();
            let limits: Vec<String> = limits
                .map(|one| format!("{} with {}", bytes(one.bytes), one.policy))
                .collect();
            writeln!(
                f,
                "The least memory in which the run still fits: {}.",
                limits.join(", ")
            )?;
        }
        writeln!(f, "{}", shown(&self.confidence.sentence))
    }
}

impl TuneReport {
    fn table(&self, top: usize) -> Table {
        let mut table = Table::new([
            ("policy", Align::Left),
            ("held", Align::Right),
            ("of the device", Align::Right),
            ("used", Align::Right),
            ("driver calls", Align::Right),
            ("driver time", Align::Right),
            ("after the start", Align::Right),
            ("per iteration", Align::Right),
            ("", Align::Left),
        ]);
        let is_shown = |row: &Row| self.front.iter().any(|other| other.name == row.name);
        let default = self
            .default
            .as_ref()
            .filter(|row| row.out_of_memory == 0 && !is_shown(row));
        for row in self.front.iter().take(top).chain(default) {
            let is_default = self
                .default
                .as_ref()
                .is_some_and(|default| default.name == row.name);
            let per_iteration = match self.iterations {
                0 => "-".to_string(),
                iterations => span(row.steady_ns / iterations as u64),
            };
            let remark = match (row.is_advised, is_default) {
                (true, true) => "advised; the default",
                (true, false) => "advised",
                (false, true) => "the default",
                (false, false) => "",
            };
            table.row([
                row.name.clone(),
                bytes(row.peak_reserved),
                bytes(row.peak_taken),
                format!("{:.1} %", row.utilization * 100.0),
                count(row.driver_calls),
                span(row.driver_ns),
                percent(row.steady_ns as f64, self.steady_ns as f64),
                per_iteration,
                remark.to_string(),
            ]);
        }
        table
    }

    /// Writes the candidates that do not fit into the limit.
    fn refusals(&self, f: &mut fmt::Formatter<'_>, top: usize) -> fmt::Result {
        let Some(limit) = self.limit else {
            return Ok(());
        };
        if let Some(closest) = &self.closest {
            write!(f, "Nothing fits into {}.", bytes(limit))?;
            write!(
                f,
                " Closest is {}, which refuses {}",
                closest.row.name,
                count(closest.row.out_of_memory)
            )?;
            return match closest.smallest_limit {
                Some(least) => writeln!(f, " requests; it needs {}.", bytes(least)),
                None => writeln!(f, " requests."),
            };
        }
        if self.do_not_fit.is_empty() {
            return writeln!(f, "All of them fit into {}.", bytes(limit));
        }
        let names = self.do_not_fit.iter().map(|row| row.name.as_str());
        let names: Vec<&str> = names.take(top).collect();
        let listed = names.join("; ");
        write!(f, "Into {} these do not fit: {listed}", bytes(limit))?;
        match self.do_not_fit.len().saturating_sub(top) {
            0 => writeln!(f, "."),
            more => writeln!(f, "; and {more} more."),
        }
    }
}

impl OfAdvice {
    fn text(&self, f: &mut fmt::Formatter<'_>, report: &TuneReport) -> fmt::Result {
        if let Some(keep) = &self.keep {
            writeln!(f, "\n{}", shown(keep))?;
            return self.notes.iter().try_for_each(|note| writeln!(f, "{note}"));
        }
        writeln!(f, "\nAdvice: {}.", report.rule)?;
        if !self.is_within {
            writeln!(f, "Here none does.")?;
        }
        if self.line.is_empty() {
            writeln!(f, "\n  no variable: the defaults are best\n")?;
        } else {
            writeln!(f, "\n  {}\n", shown(&self.line))?;
        }
        if !self.unset.is_empty() {
            writeln!(
                f,
                "Without {}, which was set when it was recorded.",
                self.unset.join(" and ")
            )?;
        }
        write!(
            f,
            "It would have held {} at most",
            bytes(self.row.peak_reserved)
        )?;
        let than = match self.saves.than {
            "recorded" => "when it was recorded",
            _ => "with PyTorch's allocator",
        };
        if let (Some(saved), Some(share)) = (self.saves.bytes, self.saves.percent) {
            let (size, share) = (bytes(saved.unsigned_abs()), share.abs());
            match saved {
                0 => write!(f, ", as much as {than}")?,
                1.. => write!(f, ", {size} ({share:.1} %) less than {than}")?,
                _ => write!(f, ", {size} ({share:.1} %) more than {than}")?,
            }
        }
        if let Some(limit) = self.smallest_limit {
            write!(f, "; GPUSHIM_LIMIT={} would have been enough", size(limit))?;
        }
        write!(f, ". Its driver calls take {}", span(self.row.driver_ns))?;
        if let Some(less) = self.saves.driver_ns {
            let than = match self.saves.time_than {
                "recorded" => "than as it was recorded",
                _ => "than with PyTorch's allocator",
            };
            let word = if less < 0 { "more" } else { "less" };
            write!(f, ", {} {word} {than}", span(less.unsigned_abs()))?;
        }
        writeln!(f, ".")?;
        self.notes.iter().try_for_each(|note| writeln!(f, "{note}"))
    }
}
