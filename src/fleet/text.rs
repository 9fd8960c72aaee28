//! Text of a job for a terminal.

use std::collections::BTreeMap;
use std::fmt;

use super::figures::Spread;
use super::job::Fleet;
use super::outlier::{Kind, Outlier};
use crate::output::answer::plural;
use crate::output::escape::shown;
use crate::output::numbered::{numbered, sureness};
use crate::output::style::{Style, verdict};
use crate::output::table::{Align, Table};
use crate::output::units::{bytes, count, span};

/// Most ranks in a sentence.
const NAMED: usize = 8;
/// Most outliers in the text.
const OUTLIERS: usize = 20;
/// Most rows in each table.
const ROWS: usize = 10;
/// Most ranks that have a row each.
const FEW: usize = 16;

impl fmt::Display for Fleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.verdict();
        writeln!(f, "{}", verdict(self.is_found(), &shown(&text)))?;
        for file in self.unreadable.iter().take(ROWS) {
            writeln!(f, "  {}: {}", shown(&file.file), shown(&file.why))?;
        }
        let more = self.unreadable.len().saturating_sub(ROWS);
        if more > 0 {
            writeln!(f, "  and {more} more files that cannot be read")?;
        }
        if !self.outliers.is_empty() {
            writeln!(f)?;
        }
        for (index, one) in self.outliers.iter().take(OUTLIERS).enumerate() {
            f.write_str(&outlier(index + 1, one))?;
        }
        let more = self.outliers.len().saturating_sub(OUTLIERS);
        if more > 0 {
            writeln!(
                f,
                "  and {more} more, which --format json and `gpushim html` show"
            )?;
        }
        let has_few = self.ranks.len() <= FEW;
        let [ranks, spreads, functions, phases] = self.tables(if has_few { FEW } else { ROWS });
        let figures = if has_few { ranks } else { spreads };
        for table in [figures, functions, phases] {
            if !table.is_empty() {
                write!(f, "\n{table}")?;
            }
        }
        Ok(())
    }
}

impl Fleet {
    /// Returns the result in one or two sentences.
    pub fn verdict(&self) -> String {
        let job = self
            .job
            .as_ref()
            .map_or(String::new(), |job| format!("Job {job}: "));
        let many = plural(self.ranks.len() as u64, "rank");
        let mut text = format!(
            "{job}{many} on {}",
            plural(self.totals.hosts as u64, "host")
        );
        let mut kinds: BTreeMap<Kind, usize> = BTreeMap::new();
        for one in &self.outliers {
            *kinds.entry(one.kind).or_default() += one.ranks.len();
        }
        let kinds = kinds.iter();
        let kinds: Vec<String> = kinds
            .map(|(kind, many)| format!("{} {}", count(*many as u64), kind.name()))
            .collect();
        match (kinds.is_empty(), self.ranks.len()) {
            (true, 0 | 1) => text.push('.'),
            (true, _) => text.push_str(", none of which is unlike the others."),
            (false, _) => text.push_str(&format!("; unlike the others: {}.", kinds.join(", "))),
        }
        if let Some((_, highest)) = self.highest_row().filter(|_| self.ranks.len() > 1) {
            text.push_str(&format!(
                " Rank {} peaks highest, at {} after {}.",
                highest.name,
                bytes(highest.peak),
                span(highest.started_ns.saturating_add(highest.peak_ns))
            ));
        }
        let with = self.ranks.iter().filter(|rank| !rank.findings.is_empty());
        let with: Vec<String> = with.map(|rank| rank.name.clone()).collect();
        if !with.is_empty() && with.len() < self.ranks.len() {
            let verb = if with.len() == 1 { "has" } else { "have" };
            text.push_str(&format!(" Only {} {verb} findings.", ranks(&with)));
        }
        for (many, what, how) in [
            (
                self.other_processes,
                "more recording",
                "left out: workers, or an earlier run of a rank",
            ),
            (self.unreadable.len(), "file", "not readable"),
        ] {
            let are = if many == 1 { "is" } else { "are" };
            if many > 0 {
                text.push_str(&format!(" {} {are} {how}.", plural(many as u64, what)));
            }
        }
        text
    }

    /// Returns tables of the ranks, of figures over all ranks, of functions at the peaks and of
    /// phases. Each has at most `most` rows.
    pub fn tables(&self, most: usize) -> [Table; 4] {
        [
            self.rows(most),
            self.spreads(),
            self.held(most),
            self.phases(most),
        ]
    }

    fn rows(&self, most: usize) -> Table {
        let mut table = Table::new([
            ("rank", Align::Left),
            ("gpu", Align::Right),
            ("peak", Align::Right),
            ("at", Align::Right),
            ("reserved", Align::Right),
            ("at the end", Align::Right),
            ("iterations", Align::Right),
            ("", Align::Left),
        ]);
        for rank in self.ranks.iter().take(most) {
            let outliers = rank.outlier.iter().map(|kind| kind.name());
            let mut notes: Vec<&str> = outliers.collect();
            for kind in &rank.findings {
                if !notes.contains(&kind.as_str()) {
                    notes.push(kind);
                }
            }
            if rank.name == self.highest {
                notes.insert(0, "highest");
            }
            let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_string());
            table.row([
                rank.name.clone(),
                or_none(rank.device.map(|device| device.to_string())),
                bytes(rank.peak),
                span(rank.started_ns.saturating_add(rank.peak_ns)),
                bytes(rank.reserved),
                bytes(rank.end),
                or_none(rank.iterations.map(count)),
                notes.join(", "),
            ]);
        }
        table
    }

    fn held(&self, most: usize) -> Table {
        let mut table = Table::new([
            ("held at the peaks", Align::Right),
            ("by ranks", Align::Right),
            ("function", Align::Left),
        ]);
        for of in self.functions.iter().take(most) {
            let function = match of.function.as_str() {
                "" => "no stack recorded",
                function => function,
            };
            table.row([
                bytes(of.bytes),
                count(of.ranks as u64),
                function.to_string(),
            ]);
        }
        table
    }

    fn phases(&self, most: usize) -> Table {
        let mut table = Table::new([
            ("phase", Align::Left),
            ("least", Align::Right),
            ("median", Align::Right),
            ("most", Align::Right),
            ("by rank", Align::Right),
        ]);
        for phase in self.phases.iter().take(most) {
            table.row([
                phase.name.clone(),
                bytes(phase.peak.least),
                bytes(phase.peak.median),
                bytes(phase.peak.most),
                phase.highest.clone(),
            ]);
        }
        table
    }

    fn spreads(&self) -> Table {
        let mut table = Table::new([
            ("of a rank", Align::Left),
            ("least", Align::Right),
            ("10 %", Align::Right),
            ("median", Align::Right),
            ("90 %", Align::Right),
            ("most", Align::Right),
            ("all together", Align::Right),
        ]);
        let mut row = |name: &str, of: &Spread, unit: fn(u64) -> String, has_sum: bool| {
            if of.most > 0 {
                table.row([
                    name.to_string(),
                    unit(of.least),
                    unit(of.p10),
                    unit(of.median),
                    unit(of.p90),
                    unit(of.most),
                    if has_sum { unit(of.sum) } else { String::new() },
                ]);
            }
        };
        let totals = &self.totals;
        row("peak", &totals.peak, bytes, true);
        row("reserved", &totals.reserved, bytes, true);
        row("iterations", &totals.iterations, count, false);
        row("an iteration", &totals.iteration_ns, span, false);
        table
    }
}

fn outlier(number: usize, one: &Outlier) -> String {
    let style = match one.sure {
        true => Style::Bad,
        false => Style::Warn,
    };
    let place = one.site.as_ref().filter(|site| !site.short.is_empty());
    let place = place.map(|site| {
        let callers = site.frames.iter().skip(1).take(2).cloned();
        let callers: Vec<String> = callers.collect();
        match callers.is_empty() {
            true => shown(&site.short),
            false => shown(&format!(
                "{}, called by {}",
                site.short,
                callers.join(", by ")
            )),
        }
    });
    let lines = [
        ("where", place),
        (sureness(one.sure), Some(shown(&one.why))),
        ("more", one.next.as_ref().map(|next| shown(next))),
    ];
    let text = format!("{}, {}: {}", one.kind.name(), ranks(&one.ranks), one.text);
    numbered(number, style, &shown(&text), &lines)
}

/// Formats ranks as `rank 3` or `ranks 3, 7-9, 12`; consecutive numbers are merged.
pub fn ranks(names: &[String]) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut row: Option<(u64, u64)> = None;
    let flush = |row: &mut Option<(u64, u64)>, parts: &mut Vec<String>| {
        if let Some((from, to)) = row.take() {
            parts.push(match to - from {
                0 => from.to_string(),
                1 => format!("{from}, {to}"),
                _ => format!("{from}-{to}"),
            });
        }
    };
    for name in names {
        match (name.parse::<u64>(), &mut row) {
            (Ok(number), Some((_, to))) if number == *to + 1 => *to = number,
            (Ok(number), _) => {
                flush(&mut row, &mut parts);
                row = Some((number, number));
            }
            (Err(_), _) => {
                flush(&mut row, &mut parts);
                parts.push(name.clone());
            }
        }
    }
    flush(&mut row, &mut parts);
    let more = parts.len().saturating_sub(NAMED);
    parts.truncate(NAMED);
    let word = if names.len() == 1 { "rank" } else { "ranks" };
    match more {
        0 => format!("{word} {}", parts.join(", ")),
        more => format!("{word} {} and {more} more", parts.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_in_a_row() {
        let of = |numbers: &[u32]| {
            let names: Vec<String> = numbers.iter().map(u32::to_string).collect();
            ranks(&names)
        };
        assert_eq!(of(&[3]), "rank 3");
        assert_eq!(of(&[3, 4, 5, 9]), "ranks 3-5, 9");
        assert_eq!(of(&[3, 4]), "ranks 3, 4");
        let odd: Vec<u32> = (0..20).map(|at| at * 2).collect();
        assert_eq!(of(&odd), "ranks 0, 2, 4, 6, 8, 10, 12, 14 and 12 more");
        assert_eq!(ranks(&["a/7".to_string()]), "rank a/7");
    }
}
