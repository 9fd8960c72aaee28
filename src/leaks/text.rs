//! What is left behind, in words and figures.

use std::fmt;

use serde::Serialize;

use super::find::Leaks;
use crate::iterations::Iterations;
use crate::ledger::Focus;
use crate::output::escape::shown;
use crate::output::finding::{Finding, Holder, Subject};
use crate::output::table::{Align, Table};
use crate::output::units::{bytes, count, percent, span};
use crate::recording::{Names, Recording};

/// What `gpushim leaks` finds.
#[derive(Clone, Debug, Serialize)]
pub struct LeaksReport {
    /// Of what.
    #[serde(flatten)]
    pub subject: Subject,
    /// When it was looked at, ns since the start.
    pub ns: u64,
    /// Whether that is just before the last iteration.
    pub before_last_iteration: bool,
    /// Bytes live then.
    pub bytes: u64,
    /// Bytes of those who leave some behind in iteration after iteration.
    pub leaked: u64,
    /// Iterations that were looked at for that.
    pub iterations: usize,
    /// Who holds them: those who leak first, then those with most.
    pub left: Vec<LeftBehind>,
    /// All of it in a sentence.
    pub verdict: String,
}

/// Blocks that somebody left behind.
#[derive(Clone, Debug, Serialize)]
pub struct LeftBehind {
    /// Who.
    #[serde(flatten)]
    pub holder: Holder,
    /// In how many iterations.
    pub in_iterations: usize,
    /// Whether that is a leak.
    pub leaks: bool,
    /// Age of the newest, ns.
    pub newest_age_ns: u64,
    /// Age of the oldest, ns.
    pub oldest_age_ns: u64,
}

impl LeaksReport {
    /// Looks at a recording.
    pub fn of(recording: &dyn Recording, focus: Focus, names: &mut dyn Names) -> LeaksReport {
        let iterations = Iterations::find(recording, focus);
        let leaks = Leaks::of(recording, focus, iterations.as_ref());
        LeaksReport::new(Subject::of(recording, focus), &leaks, names)
    }

    /// Of what was found to be left.
    pub fn new(subject: Subject, leaks: &Leaks, names: &mut dyn Names) -> LeaksReport {
        let left = leaks.left.iter().map(|left| LeftBehind {
            holder: Holder::of(names, &left.held, leaks.bytes),
            in_iterations: left.iterations,
            leaks: left.leaks,
            newest_age_ns: leaks.ns.saturating_sub(left.held.newest_ns),
            oldest_age_ns: leaks.ns.saturating_sub(left.held.oldest_ns),
        });
        let left: Vec<LeftBehind> = left.collect();
        LeaksReport {
            subject,
            ns: leaks.ns,
            before_last_iteration: leaks.before_last_iteration,
            bytes: leaks.bytes,
            leaked: leaks.leaked,
            iterations: leaks.iterations,
            verdict: sentence(leaks, &left),
            left,
        }
    }
}

fn sentence(leaks: &Leaks, left: &[LeftBehind]) -> String {
    let when = if leaks.before_last_iteration {
        "before the last iteration"
    } else {
        "at the end"
    };
    let all = format!("{} are live {when}", bytes(leaks.bytes));
    let leaking: Vec<_> = left.iter().filter(|left| left.leaks).collect();
    if leaking.is_empty() {
        return match leaks.iterations {
            0 => format!("{all}; no iterations were found, so none of it can be called a leak."),
            looked => format!(
                "{all}; nobody leaves some behind in each of {} iterations.",
                count(looked as u64)
            ),
        };
    }
    let parts = leaking.iter().take(3).map(|left| {
        let Holder {
            who, bytes: held, ..
        } = &left.holder;
        format!(
            "{} by {}, in {} of {} iterations",
            bytes(*held),
            who.in_a_sentence(),
            left.in_iterations,
            leaks.iterations
        )
    });
    let parts: Vec<_> = parts.collect();
    format!(
        "{all}, and {} of it was left behind: {}.",
        bytes(leaks.leaked),
        parts.join("; ")
    )
}

impl Finding for LeaksReport {
    fn is_found(&self) -> bool {
        self.leaked > 0
    }

    fn text(&self, f: &mut fmt::Formatter<'_>, top: usize) -> fmt::Result {
        self.subject.heading(f)?;
        writeln!(f, "{}", shown(&self.verdict))?;
        let mut table = Table::new([
            ("", Align::Left),
            ("held", Align::Right),
            ("", Align::Right),
            ("blocks", Align::Right),
            ("iterations", Align::Right),
            ("age", Align::Right),
            ("by", Align::Left),
        ]);
        for left in self.left.iter().take(top) {
            let holder = &left.holder;
            table.row([
                if left.leaks { "leak" } else { "" }.to_string(),
                bytes(holder.bytes),
                percent(holder.share, 1.0),
                count(holder.blocks),
                left.in_iterations.to_string(),
                format!(
                    "{} to {}",
                    span(left.newest_age_ns),
                    span(left.oldest_age_ns)
                ),
                holder.who.function_or("no stack recorded"),
            ]);
        }
        if !table.is_empty() {
            write!(f, "\n{table}")?;
        }
        self.left
            .first()
            .filter(|left| left.leaks)
            .map_or(Ok(()), |left| left.holder.way(f))
    }
}
