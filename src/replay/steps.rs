//! Table of the steps of a replay: the first, the last and the largest figures.

use std::fmt;

use super::text::OfDevice;
use crate::output::escape::shown;
use crate::output::table::{Align, Table};
use crate::output::units::{bytes, count, span};
use gpushim_simulate::replay::Step;

impl OfDevice {
    /// Writes a row for each policy, if there are steps.
    pub(super) fn steps(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outcomes = self.policies.iter();
        let outcomes = outcomes.map(|of| (of.policy, &of.outcome));
        let mut outcomes = outcomes
            .filter(|(_, outcome)| !outcome.steps.is_empty())
            .peekable();
        let (Some((_, first)), Some(by)) = (outcomes.peek(), &self.steps_by) else {
            return Ok(());
        };
        let kept = first.steps.len() as u64;
        let of = if kept < self.steps {
            format!("the first {} of {}", count(kept), count(self.steps))
        } else {
            count(kept)
        };
        writeln!(
            f,
            "\n{of} steps, recognised by {}; the first, the last, the worst",
            shown(by)
        )?;
        let mut table = Table::new([
            ("policy", Align::Left),
            ("requested", Align::Right),
            ("held", Align::Right),
            ("driver calls", Align::Right),
            ("driver time", Align::Right),
        ]);
        for (policy, outcome) in outcomes {
            let steps = &outcome.steps;
            table.row([
                policy.name().to_string(),
                three(steps, |step| step.peak_requested, bytes),
                three(steps, |step| step.peak_reserved, bytes),
                three(steps, |step| step.driver_calls, count),
                three(steps, |step| step.driver_ns, span),
            ]);
        }
        write!(f, "{table}")
    }
}

/// Formats a figure of the first step, of the last, and the largest of all.
fn three(steps: &[Step], of: impl Fn(&Step) -> u64, shown: impl Fn(u64) -> String) -> String {
    let of = |step: Option<&Step>| step.map_or(0, &of);
    let most = steps.iter().map(|step| of(Some(step))).max();
    let three = [of(steps.first()), of(steps.last()), most.unwrap_or(0)];
    three.map(shown).join(", ")
}
