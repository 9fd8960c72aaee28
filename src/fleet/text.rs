//! Text of a job for a terminal.

use std::fmt;

use super::job::{Fleet, Spread};
use super::outlier::{Kind, Outlier};
use super::summary::Site;
use crate::output::escape::shown;
use crate::output::style::{self, Style, marked, verdict};
use crate::output::table::{Align, Table};
use crate::output::units::{bytes, count, span};
use crate::output::wrap::paragraph;

/// Most ranks in a sentence.
const NAMED: usize = 8;
/// Most outliers in the text.
const OUTLIERS: usize = 20;
/// Most rows in each table.
const ROWS: usize = 10;

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
        for (index, one) in self.outliers.iter().take(OUTLIERS).enumerate() {
            outlier(index + 1, one, f)?;
        }
        let more = self.outliers.len().saturating_sub(OUTLIERS);
        if more > 0 {
            writeln!(f, "\nand {more} more, which --format json and --html show")?;
        }
        if self.ranks.is_empty() {
            return Ok(());
        }
        writeln!(f, "\n{}", self.spreads())?;
        if !self.functions.is_empty() {
            writeln!(
                f,
                "{}",
                marked(Style::Heading, "Held at the peaks, all ranks together")
            )?;
            for of in self.functions.iter().take(ROWS) {
                let name = match of.function.as_str() {
                    "" => "no stack recorded".to_string(),
                    name => shown(&crate::cut::shortened(
                        name,
                        style::row().saturating_sub(30),
                    )),
                };
                let ranks = if of.ranks == 1 { "rank " } else { "ranks" };
                writeln!(
                    f,
                    "{:>12}  {:>5} {ranks}  {name}",
                    bytes(of.bytes),
                    of.ranks
                )?;
            }
        }
        let mut phases = Table::new([
            ("phase", Align::Left),
            ("least", Align::Right),
            ("median", Align::Right),
            ("most", Align::Right),
            ("by rank", Align::Right),
        ]);
        for phase in self.phases.iter().take(ROWS) {
            phases.row([
                phase.name.clone(),
                bytes(phase.peak.least),
                bytes(phase.peak.median),
                bytes(phase.peak.most),
                phase.highest.clone(),
            ]);
        }
        if !phases.is_empty() {
            write!(f, "\n{phases}")?;
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
        let hosts = match self.totals.hosts {
            1 => "1 host".to_string(),
            hosts => format!("{} hosts", count(hosts as u64)),
        };
        let mut text = format!("{job}{} ranks on {hosts}", count(self.ranks.len() as u64));
        let mut kinds: Vec<String> = Vec::new();
        let all = [
            (Kind::OutOfMemory, "ran out of memory"),
            (Kind::Died, "died"),
            (Kind::Missing, "missing"),
            (Kind::Leak, "leak"),
            (Kind::OtherModel, "run another model"),
            (Kind::OtherSettings, "have other settings"),
            (Kind::Imbalance, "out of balance"),
            (Kind::Straggler, "slower or behind"),
        ];
        for (kind, words) in all {
            let of = self.outliers.iter().filter(|one| one.kind == kind);
            let many: usize = of.map(|one| one.ranks.len()).sum();
            if many > 0 {
                kinds.push(format!("{} {words}", count(many as u64)));
            }
        }
        match kinds.is_empty() {
            true => text.push_str(": none is unlike the others."),
            false => text.push_str(&format!(": {}.", kinds.join(", "))),
        }
        if !self.unreadable.is_empty() {
            let files = self.unreadable.len() as u64;
            text.push_str(&format!(" {} files cannot be read.", count(files)));
        }
        text
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

fn outlier(number: usize, one: &Outlier, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let title = format!("{number}. {}: {}", one.kind.name(), ranks(&one.ranks));
    let style = match one.sure {
        true => Style::Bad,
        false => Style::Warn,
    };
    writeln!(f, "\n{}", marked(style, &shown(&title)))?;
    let mut line = |label: &str, text: &str| {
        f.write_str(&paragraph(
            &format!("   {label:<7}"),
            &shown(text),
            style::line(),
        ))
    };
    line("", &one.text)?;
    if let Some(Site { short, frames, .. }) =
        one.site.as_ref().filter(|site| !site.short.is_empty())
    {
        let way: Vec<&str> = frames.iter().skip(1).map(String::as_str).take(2).collect();
        let by = match way.is_empty() {
            true => String::new(),
            false => format!(", called by {}", way.join(", by ")),
        };
        line("at", &format!("{short}{by}"))?;
    }
    line(if one.sure { "sure" } else { "likely" }, &one.why)?;
    if let Some(next) = &one.next {
        line("more", next)?;
    }
    Ok(())
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
