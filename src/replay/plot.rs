//! Reserved memory over time: one plot per policy, on one scale.

use std::fmt::{self, Write};

use super::outcome::{Outcome, Point};
use super::policy::Policy;
use super::text::{OfDevice, ReplayReport};
use crate::output::units::bytes;
use crate::timeline::{Curve, LINE, Plot, document, legend, panel};

/// Lines of a plot in characters, and what the height of one in a picture would have.
const LINES: u64 = 6;
/// Columns of a picture.
const COLUMNS: usize = 512;

/// A policy and its curves.
struct Drawn {
    policy: Policy,
    end_ns: u64,
    requested: Curve,
    held: Curve,
}

impl OfDevice {
    /// Plots each policy, `columns` characters wide.
    pub(super) fn plot(&self, columns: usize, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let drawn = self.drawn(columns);
        let top = self.top();
        for (index, one) in drawn.iter().enumerate() {
            if index == 0 {
                writeln!(f, "\n{}", legend(&one.requested, Some(&one.held)))?;
            }
            writeln!(f, "\n{}: {} held at most", one.policy, bytes(one.held.peak))?;
            one.plot(top).write(f)?;
        }
        Ok(())
    }

    fn drawn(&self, columns: usize) -> Vec<Drawn> {
        let outcomes = self.policies.iter();
        let outcomes = outcomes.map(|of| (of.policy, &of.outcome));
        outcomes
            .filter(|(_, outcome)| !outcome.curve.0.is_empty())
            .map(|(policy, outcome)| Drawn::of(policy, outcome, columns))
            .collect()
    }

    /// The height that all plots have, bytes.
    fn top(&self) -> u64 {
        let outcomes = self.policies.iter().map(|of| &of.outcome);
        let most = outcomes.map(|outcome| outcome.peak_reserved.max(outcome.peak_requested));
        most.max().unwrap_or(0).max(1)
    }
}

impl Drawn {
    fn of(policy: Policy, outcome: &Outcome, columns: usize) -> Drawn {
        let points = &outcome.curve.0;
        // Where nothing has a time, one request is as long as another.
        let end_ns = points.last().map_or(0, |last| last.ns);
        let at = |point: &Point| {
            if end_ns == 0 {
                point.requests
            } else {
                point.ns
            }
        };
        let curve = |name, of: &dyn Fn(&Point) -> u64| {
            let most = points
                .iter()
                .max_by_key(|point| (of(point), std::cmp::Reverse(point.requests)));
            Curve {
                name,
                columns: spread(points.iter().map(|point| (at(point), of(point))), columns),
                peak: most.map_or(0, of),
                peak_ns: most.map_or(0, |point| point.ns),
            }
        };
        Drawn {
            policy,
            end_ns,
            requested: curve("requested", &|point| point.requested),
            held: curve("held", &|point| point.reserved),
        }
    }

    fn plot(&self, top: u64) -> Plot<'_> {
        Plot {
            end_ns: self.end_ns,
            top,
            lines: LINES,
            handed_out: &self.requested,
            held: Some(&self.held),
            phases: &[],
        }
    }
}

/// Values that hold from the one before them to their own time, over columns of one width.
fn spread(
    values: impl Iterator<Item = (u64, u64)> + Clone,
    columns: usize,
) -> Vec<Option<(u64, u64)>> {
    let end = values.clone().last().map_or(0, |(at, _)| at).max(1);
    let last = columns.saturating_sub(1);
    let column =
        |at: u64| ((u128::from(at) * columns as u128 / u128::from(end)) as usize).min(last);
    let mut spread: Vec<Option<(u64, u64)>> = vec![None; columns];
    let mut from = 0;
    for (at, value) in values {
        let to = column(at);
        for place in spread.get_mut(from..=to).unwrap_or_default() {
            let (least, most) = place.unwrap_or((value, value));
            *place = Some((least.min(value), most.max(value)));
        }
        from = to;
    }
    spread
}

/// Writes replays as one picture: each policy below the other, on one scale for each device.
///
/// # Errors
/// Those of the formatter.
pub fn write_replay_svg(reports: &[ReplayReport], out: &mut dyn Write) -> fmt::Result {
    let (mut body, mut at, mut told) = (String::new(), 12.0, Vec::new());
    for report in reports {
        for device in &report.devices {
            let top = device.top();
            for one in device.drawn(COLUMNS) {
                let heading = format!(
                    "{}, gpu {}: {}",
                    report.subject.trace, device.gpu, one.policy
                );
                panel(&heading, &one.plot(top), &mut at, &mut body)?;
                told.push(format!("{heading}: at most {} held", bytes(one.held.peak)));
            }
            at += LINE;
        }
    }
    let names: Vec<&str> = reports.iter().map(|one| &*one.subject.trace).collect();
    let title = format!("Memory over time by other allocators: {}", names.join(", "));
    document(&title, &told, at, &body, out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_hold_until_their_time() {
        let values = [(10, 5), (50, 7), (100, 1)];
        let columns: Vec<_> = spread(values.into_iter(), 10)
            .into_iter()
            .flatten()
            .collect();
        assert_eq!(columns[0], (5, 5));
        assert_eq!(columns[1], (5, 7));
        assert_eq!(columns[2..5], [(7, 7); 3]);
        assert_eq!(columns[5], (1, 7));
        assert_eq!(columns[6..], [(1, 1); 4]);
        assert_eq!(spread(std::iter::empty(), 3), [None; 3]);
        assert!(
            spread([(u64::MAX, u64::MAX)].into_iter(), 3)
                .iter()
                .all(Option::is_some)
        );
        assert!(spread([(1, 1)].into_iter(), 0).is_empty());
    }
}
