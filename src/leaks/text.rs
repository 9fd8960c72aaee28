//! What is left behind, in words and figures.

use std::cmp::Reverse;
use std::fmt;

use rustc_hash::FxHashMap;
use serde::Serialize;

use super::find::Leaks;
use crate::growth::{Growth, fix_of};
use crate::ledger::Focus;
use crate::loops::{Followed, Given, Judgement, Recognised, Told, in_a_sentence, in_a_table};
use crate::output::answer::{Answer, ONE_MOMENT, RECORD_HISTORY, Subject};
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
    /// The certainty of growth or of its absence; `None` without iterations.
    pub judgement: Option<Judgement>,
    /// The change to make in the program, if one pattern fits all that leaks.
    pub fix: Option<String>,
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
    /// Analyses a recording, if given by what the user set that its iterations begin with.
    pub fn of(
        recording: &dyn Recording,
        focus: Focus,
        given: Option<&Given>,
        names: &mut dyn Names,
    ) -> LeaksReport {
        let followed = Followed::of(recording, focus, given);
        let growth = Growth::of(&followed);
        let leaks = Leaks::of(recording, &followed);
        let subject = Subject::of(recording, focus);
        let iterations = followed.iterations.as_ref();
        let left = leaks.left.iter().map(|left| LeftBehind {
            holder: Holder::of(names, &left.held, leaks.bytes),
            in_iterations: left.iterations,
            leaks: left.per_iteration.is_some(),
            per_iteration: left.per_iteration,
            size: left.size,
            newest_age_ns: leaks.ns.saturating_sub(left.held.newest_ns),
            oldest_age_ns: leaks.ns.saturating_sub(left.held.oldest_ns),
        });
        let left = merged(left);
        LeaksReport {
            verdict: sentence(&subject, &leaks, &left),
            subject,
            ns: leaks.ns,
            before_last_iteration: leaks.before_last_iteration,
            bytes: leaks.bytes,
            leaked: leaks.leaked,
            iterations: leaks.iterations,
            recognised: iterations.map(|iterations| Recognised::of(iterations, names)),
            judgement: leaks.judgement,
            fix: fix_of(growth.as_ref().map_or(&[], |growth| &growth.keepers), names),
            left,
        }
    }
}

/// Rows that would look the same are one, if they are alike in being leaks, and in size.
fn merged(all: impl Iterator<Item = LeftBehind>) -> Vec<LeftBehind> {
    let mut rows: Vec<LeftBehind> = Vec::new();
    let mut places = FxHashMap::<_, usize>::default();
    for left in all {
        let place = places
            .entry((left.holder.look(), left.size, left.leaks))
            .or_insert(rows.len());
        match rows.get_mut(*place) {
            Some(row) => row.add(&left),
            None => rows.push(left),
        }
    }
    rows.sort_by_key(|row| {
        let is_left = row.per_iteration.is_some();
        (!row.leaks, !is_left, Reverse(row.holder.bytes))
    });
    rows
}

impl LeftBehind {
    /// Adds blocks that belong to the same row.
    fn add(&mut self, other: &LeftBehind) {
        self.holder.add(&other.holder);
        // At least: they may have come in other iterations.
        self.in_iterations = self.in_iterations.max(other.in_iterations);
        if let Some(more) = other.per_iteration {
            *self.per_iteration.get_or_insert(0.0) += more;
        }
        self.newest_age_ns = self.newest_age_ns.min(other.newest_age_ns);
        self.oldest_age_ns = self.oldest_age_ns.max(other.oldest_age_ns);
    }
}

fn sentence(subject: &Subject, leaks: &Leaks, left: &[LeftBehind]) -> String {
    if subject.one_moment {
        return format!(
            "{} are live; none of it can be called a leak: {ONE_MOMENT}. {RECORD_HISTORY}.",
            bytes(leaks.bytes)
        );
    }
    let when = if leaks.before_last_iteration {
        "before the last iteration"
    } else {
        "at the end"
    };
    let all = format!("{} are live {when}", bytes(leaks.bytes));
    let leaking: Vec<_> = left.iter().filter(|left| left.leaks).collect();
    if leaking.is_empty() {
        let why = leaks.judgement.as_ref();
        let why = why.map_or("nothing comes again often enough", |judgement| {
            &judgement.why
        });
        return match leaks.judgement.as_ref().map(|judgement| judgement.told) {
            Some(Told::Sure | Told::Likely) => {
                format!("{all}; none of it is what memory grows by.")
            }
            _ => format!("{all}; whether any of it is a leak cannot be told: {why}."),
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
                match self.subject.one_moment {
                    true => String::new(),
                    false => format!(
                        "{} to {}",
                        span(left.newest_age_ns),
                        span(left.oldest_age_ns)
                    ),
                },
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
        match &self.fix {
            Some(fix) => writeln!(f, "\n{}", marked(Style::Good, &format!("Fix: {fix}."))),
            None => Ok(()),
        }
    }
}
