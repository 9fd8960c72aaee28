//! Differences of two runs as text.

use std::fmt;

use super::report::{DiffReport, listed};
use crate::compare::Change;
use crate::output::answer::Answer;
use crate::output::escape::shown;
use crate::output::table::{Align, Table};
use crate::output::units::{bytes, percent, span};

/// Text for a figure that one run lacks.
const ABSENT: &str = "—";

impl Answer for DiffReport {
    const COMMAND: &'static str = "diff";

    fn is_found(&self) -> bool {
        !self.regressions.is_empty()
    }

    fn text(&self, f: &mut fmt::Formatter<'_>, top: usize) -> fmt::Result {
        for (name, run) in ["before", "after "].iter().zip(&self.runs) {
            write!(f, "{name}  ")?;
            run.heading(f)?;
        }
        let mut table = figures("");
        row(&mut table, self.peak, "peak");
        let [before, after] = self.iteration_ns;
        if before > 0 && after > 0 {
            let times = format!("{:+.1} %", (after as f64 / before as f64 - 1.0) * 100.0);
            table.row([
                span(before),
                span(after),
                times,
                "time of an iteration".to_string(),
            ]);
        }
        let in_both = self.phases.iter().filter(|phase| phase.added().is_some());
        for phase in in_both.take(top) {
            let name = format!("{}, peak above entry", phase.name);
            row(&mut table, phase.values, &name);
        }
        write!(f, "\n{table}")?;
        for (title, rows) in [
            ("held at the peak by", &self.holders),
            ("kept at the peak by", &self.owners),
        ] {
            let mut table = figures(title);
            for change in rows.iter().filter(|one| one.added() != Some(0)).take(top) {
                row(&mut table, change.values, &change.name);
            }
            if !table.is_empty() {
                write!(f, "\n{table}")?;
            }
        }
        for sentence in &self.not_compared {
            write!(f, "\n{}", shown(sentence))?;
        }
        if !self.not_compared.is_empty() {
            writeln!(f)?;
        }
        let allowed = percent(self.max_growth, 1.0);
        if !self.regressions.is_empty() {
            let names = listed(&self.regressions, top);
            writeln!(
                f,
                "\nRegression: more than {allowed} of the peak before was added to: {}",
                shown(&names)
            )?;
        }
        Ok(())
    }
}

/// Makes a table with the figures first, so that long names cannot push them out of view.
fn figures(what: &str) -> Table {
    Table::new([
        ("before", Align::Right),
        ("after", Align::Right),
        ("change", Align::Right),
        (what, Align::Left),
    ])
}

fn row(table: &mut Table, values: [Option<u64>; 2], name: &str) {
    let change = Change::of(name, values);
    let value = |value: Option<u64>| value.map_or(ABSENT.to_string(), bytes);
    let added = match change.added() {
        None => ABSENT.to_string(),
        Some(0) => "same".to_string(),
        Some(added) => {
            let sign = if added < 0 { "-" } else { "+" };
            format!("{sign}{}", bytes(change.weight()))
        }
    };
    let [before, after] = values;
    table.row([value(before), value(after), added, name.to_string()]);
}
