//! What is left behind, in words and figures.

use std::fmt;

use serde::Serialize;

use super::blocks::Blocks;
use super::cure::cure;
use super::find::Leaks;
use crate::iterations::{Followed, Iterations, Recognised, in_a_sentence, in_a_table};
use crate::ledger::Focus;
use crate::output::answer::{Answer, Subject};
use crate::output::escape::shown;
use crate::output::holder::{Holder, holder_labels};
use crate::output::style::{Style, marked, verdict};
use crate::output::table::{Align, Table};
use crate::output::units::{bytes, count, percent, span};
use crate::recording::{Names, Recording};

/// What `gpushim leaks` finds.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LeaksReport {
    /// The recording and the memory that was examined.
    #[serde(flatten)]
    pub subject: Subject,
    /// When it was looked at, ns since the start.
    pub ns: u64,
    /// Whether that is just before the last iteration.
    pub before_last_iteration: bool,
    /// Bytes live then.
    pub bytes: u64,
    /// Bytes of the stacks that leave blocks behind in most iterations.
    pub leaked: u64,
    /// Iterations that were examined.
    pub iterations: usize,
    /// What the iterations were recognised by, and how sure they are; `None` without iterations.
    pub recognised: Option<Recognised>,
    /// The stacks that hold them: leaking ones first, then those with most bytes.
    pub left: Vec<LeftBehind>,
    /// The result in one sentence.
    pub verdict: String,
}

/// Blocks that one stack left behind.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LeftBehind {
    /// The call site.
    #[serde(flatten)]
    pub holder: Holder,
    /// In how many iterations.
    pub in_iterations: usize,
    /// Whether that is a leak.
    pub leaks: bool,
    /// What to change in the program, if the pattern is known.
    pub cure: Option<String>,
    /// Bytes that each iteration adds, if they are left behind to the end.
    pub per_iteration: Option<f64>,
    /// The size of each block, bytes, where no stack was recorded.
    pub size: Option<u64>,
    /// Age of the newest, ns.
    pub newest_age_ns: u64,
    /// Age of the oldest, ns.
    pub oldest_age_ns: u64,
}

impl LeaksReport {
    /// Analyses a recording.
    pub fn of(recording: &dyn Recording, focus: Focus, names: &mut dyn Names) -> LeaksReport {
        let followed = Followed::of(recording, focus);
        let iterations = followed.iterations.as_ref();
        let leaks = Leaks::new(iterations, followed.last_ns, &followed.kept);
        LeaksReport::new(Subject::of(recording, focus), iterations, &leaks, names)
    }

    /// Of what was found to be left by these iterations.
    pub fn new(
        subject: Subject,
        iterations: Option<&Iterations>,
        leaks: &Leaks,
        names: &mut dyn Names,
    ) -> LeaksReport {
        let left = leaks.left.iter().map(|left| LeftBehind {
            holder: Holder::of(names, &left.held, leaks.bytes),
            in_iterations: left.iterations,
            leaks: left.leaks,
            cure: (left.leaks && left.size.is_none())
                .then(|| Blocks::of(names, left.held.stack, left.held.blocks, left.held.bytes))
                .and_then(|blocks| cure(&blocks)),
            per_iteration: left.per_iteration,
            size: left.size,
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
            recognised: iterations.map(|iterations| Recognised::of(iterations, names)),
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
        if let Some(why) = &leaks.unsure {
            return format!(
                "{all}; none of it can be called a leak: something repeats {} times, but it is not sure that these are iterations: {why}.",
                count(leaks.iterations as u64)
            );
        }
        return match leaks.iterations {
            0 => format!("{all}; no iterations were found, so none of it can be called a leak."),
            looked => format!(
                "{all}; no stack leaves blocks behind in each of {} iterations.",
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
            in_a_sentence(who, left.size),
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

impl Answer for LeaksReport {
    const COMMAND: &'static str = "leaks";

    fn is_found(&self) -> bool {
        self.leaked > 0
    }

    fn text(&self, f: &mut fmt::Formatter<'_>, top: usize) -> fmt::Result {
        self.subject.heading(f)?;
        writeln!(f, "{}", verdict(self.is_found(), &shown(&self.verdict)))?;
        if let Some(recognised) = &self.recognised {
            writeln!(f, "{}", shown(&recognised.line()))?;
        }
        let mut table = Table::new([
            ("", Align::Left),
            ("held", Align::Right),
            ("", Align::Right),
            ("blocks", Align::Right),
            ("iterations", Align::Right),
            ("age", Align::Right),
            ("by", Align::Left),
        ]);
        let shown = self.left.iter().take(top).map(|left| &left.holder);
        for (left, label) in self.left.iter().zip(holder_labels(shown)) {
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
                in_a_table(label, left.size),
            ]);
        }
        if !table.is_empty() {
            write!(f, "\n{table}")?;
        }
        let Some(first) = self.left.first().filter(|left| left.leaks) else {
            return Ok(());
        };
        first.holder.way(f)?;
        match &first.cure {
            Some(cure) => writeln!(f, "\n{}", marked(Style::Good, &format!("Cure: {cure}."))),
            None => Ok(()),
        }
    }
}
