//! Rules: comparisons of figures with limits or a baseline.

use super::baseline::Baseline;
use super::outcome::{Outcome, Status};
use crate::compare::{Growth, MemoryFigures, RunFigures};
use crate::output::units::{bytes, count};

/// A rule and its limit, if it has one.
#[derive(Clone, Debug)]
pub enum Rule {
    /// Most live bytes on a device.
    Peak(u64),
    /// Most bytes that a device holds from the driver.
    Reserved(u64),
    /// Most growth of live memory in each iteration, bytes.
    Growth(u64),
    /// Iterations must not leave memory allocated, and memory must not grow.
    NoLeaks,
    /// No request may run out of memory.
    NoOutOfMemory,
    /// No figure may exceed the baseline by more than a part of it.
    Baseline(Baseline, f64),
}

impl Rule {
    /// Returns the results for a recording.
    pub fn check(&self, figures: &RunFigures) -> Vec<Outcome> {
        let each = |of: fn(&MemoryFigures) -> u64, what: &str, most: u64| {
            let devices = figures.devices.iter();
            devices
                .map(|device| at_most(format!("{what} of {}", device.in_words()), of(device), most))
                .collect()
        };
        match self {
            Rule::Peak(most) => each(|device| device.peak, "peak", *most),
            Rule::Reserved(most) => each(|device| device.reserved, "reserved", *most),
            Rule::Growth(most) => growth(figures, *most),
            Rule::NoLeaks => vec![no_leaks(figures)],
            Rule::NoOutOfMemory => vec![no_out_of_memory(figures)],
            Rule::Baseline(baseline, tolerance) => baseline.compare(figures, *tolerance),
        }
    }
}

/// Compares a value with the most that is allowed, bytes.
fn at_most(name: String, measured: u64, allowed: u64) -> Outcome {
    let relation = if measured > allowed {
        "more than"
    } else {
        "at most"
    };
    let text = format!("{}; {relation} {} allowed", bytes(measured), bytes(allowed));
    Outcome::at_most(name, measured, allowed, text)
}

/// Result of a rule with a limit that nothing exceeds, as far as the recording tells.
fn none(name: &str, allowed: u64, untold: Option<&str>, text: &str) -> Outcome {
    match untold {
        Some(why) => Outcome {
            allowed: Some(allowed),
            ..Outcome::unknown(name, format!("not told: {why}"))
        },
        None => Outcome::at_most(name, 0, allowed, text),
    }
}

fn growth(figures: &RunFigures, most: u64) -> Vec<Outcome> {
    if figures.growth.is_empty() {
        let untold = figures.untold.as_deref();
        return vec![none("growth", most, untold, "memory does not grow")];
    }
    let of_layer = |growth: &Growth| {
        let name = format!("growth of {}", growth.of);
        let mut outcome = at_most(name, growth.per_iteration, most);
        outcome.text = format!("{} per iteration. {}", outcome.text, growth.text);
        outcome
    };
    figures.growth.iter().map(of_layer).collect()
}

fn no_leaks(figures: &RunFigures) -> Outcome {
    match figures.growth.first() {
        Some(growth) => Outcome {
            status: Status::Failed,
            ..Outcome::at_most("leaks", figures.leaked, 0, &growth.text)
        },
        None => {
            let untold = figures.untold.as_deref();
            none("leaks", 0, untold, "no iteration leaves anything behind")
        }
    }
}

fn no_out_of_memory(figures: &RunFigures) -> Outcome {
    let name = "out of memory";
    let text = match figures.out_of_memory {
        0 => return none(name, 0, figures.unread, "no request ran out of memory"),
        1 => "1 request ran out of memory".to_string(),
        more => format!("{} requests ran out of memory", count(more)),
    };
    Outcome::at_most(name, figures.out_of_memory, 0, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures() -> RunFigures {
        RunFigures {
            devices: vec![MemoryFigures {
                gpu: Some(0),
                of: "tensors".to_string(),
                peak: 1000,
                reserved: 2000,
                ..MemoryFigures::default()
            }],
            ..RunFigures::default()
        }
    }

    fn statuses(rule: &Rule, figures: &RunFigures) -> Vec<Status> {
        let all = rule.check(figures);
        all.into_iter().map(|outcome| outcome.status).collect()
    }

    #[test]
    fn limits_are_inclusive() {
        let figures = figures();
        assert_eq!(statuses(&Rule::Peak(1000), &figures), [Status::Passed]);
        assert_eq!(statuses(&Rule::Peak(999), &figures), [Status::Failed]);
        assert_eq!(statuses(&Rule::Reserved(2000), &figures), [Status::Passed]);
        assert_eq!(statuses(&Rule::Reserved(1999), &figures), [Status::Failed]);
        let outcome = &Rule::Peak(999).check(&figures)[0];
        assert_eq!(outcome.name, "peak of tensors on gpu 0");
        assert_eq!(outcome.text, "1000 B; more than 999 B allowed");
    }

    #[test]
    fn growth_and_leaks() {
        let mut figures = figures();
        assert_eq!(statuses(&Rule::Growth(0), &figures), [Status::Passed]);
        assert_eq!(statuses(&Rule::NoLeaks, &figures), [Status::Passed]);
        figures.untold = Some("no iterations".to_string());
        assert_eq!(statuses(&Rule::Growth(0), &figures), [Status::Unknown]);
        assert_eq!(statuses(&Rule::NoLeaks, &figures), [Status::Unknown]);
        figures.growth.push(Growth {
            of: "tensors".to_string(),
            per_iteration: 4096,
            text: "Memory grows.".to_string(),
        });
        assert_eq!(statuses(&Rule::Growth(4095), &figures), [Status::Failed]);
        assert_eq!(statuses(&Rule::Growth(4096), &figures), [Status::Passed]);
        assert_eq!(statuses(&Rule::NoLeaks, &figures), [Status::Failed]);
        let text = &Rule::Growth(4095).check(&figures)[0].text;
        assert_eq!(
            text,
            "4.0 KiB; more than 4.0 KiB allowed per iteration. Memory grows."
        );
    }

    #[test]
    fn out_of_memory() {
        let mut figures = figures();
        assert_eq!(statuses(&Rule::NoOutOfMemory, &figures), [Status::Passed]);
        figures.unread = Some("a part of the recording cannot be read");
        assert_eq!(statuses(&Rule::NoOutOfMemory, &figures), [Status::Unknown]);
        figures.out_of_memory = 2;
        let outcome = &Rule::NoOutOfMemory.check(&figures)[0];
        assert_eq!(outcome.text, "2 requests ran out of memory");
        assert_eq!(outcome.status, Status::Failed);
    }
}
