//! End times of work: a time on the virtual clock, or a delay after an action of the host.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// State of a host function: closed until it has run. Work behind a closed gate has no end time.
#[derive(Debug)]
pub struct Gate(AtomicU64);

impl Gate {
    const CLOSED: u64 = u64::MAX;

    pub fn closed() -> Arc<Gate> {
        Arc::new(Gate(AtomicU64::new(Self::CLOSED)))
    }

    /// Opens the gate at `now`, in nanoseconds.
    pub fn open(&self, now: u64) {
        self.0.store(now, Ordering::Release);
    }

    /// Returns the time at which it opened, in nanoseconds; none while it is closed.
    pub fn opened(&self) -> Option<u64> {
        Some(self.0.load(Ordering::Acquire)).filter(|time| *time != Self::CLOSED)
    }
}

/// End of some work: not before `at`, and not before the opening of each gate plus its delay.
#[derive(Clone, Debug, Default)]
pub struct Finish {
    at: u64,
    behind: Vec<(Arc<Gate>, u64)>,
}

impl Finish {
    /// Returns an end at a known time, in nanoseconds.
    #[cfg(test)]
    pub fn at(at: u64) -> Finish {
        Finish {
            at,
            behind: Vec::new(),
        }
    }

    /// Moves the end to the later of both ends.
    pub fn join(&mut self, other: &Finish) {
        self.at = self.at.max(other.at);
        for (gate, offset) in &other.behind {
            match self
                .behind
                .iter_mut()
                .find(|(mine, _)| Arc::ptr_eq(mine, gate))
            {
                Some((_, mine)) => *mine = (*mine).max(*offset),
                None => self.behind.push((gate.clone(), *offset)),
            }
        }
    }

    /// Moves the end past work of `duration` nanoseconds. The work starts at the present end, and
    /// not before `now`.
    pub fn extend(&mut self, duration: u64, now: u64) {
        self.settle();
        self.at = self.at.max(now).saturating_add(duration);
        for (_, offset) in &mut self.behind {
            *offset = offset.saturating_add(duration);
        }
    }

    /// Delays the end until `gate` opens.
    pub fn hold(&mut self, gate: Arc<Gate>) {
        self.behind.push((gate, 0));
    }

    /// Returns the end in nanoseconds; none while a gate is closed.
    pub fn time(&self) -> Option<u64> {
        self.behind.iter().try_fold(self.at, |at, (gate, offset)| {
            gate.opened()
                .map(|opened| at.max(opened.saturating_add(*offset)))
        })
    }

    /// True if the work has ended at `now`, in nanoseconds.
    pub fn is_past(&self, now: u64) -> bool {
        self.time().is_some_and(|time| time <= now)
    }

    /// Returns the gates that are still closed.
    pub fn closed_gates(&self) -> impl Iterator<Item = &Arc<Gate>> {
        self.behind
            .iter()
            .map(|(gate, _)| gate)
            .filter(|gate| gate.opened().is_none())
    }

    fn settle(&mut self) {
        if self.behind.is_empty() {
            return;
        }
        let at = &mut self.at;
        self.behind.retain(|(gate, offset)| match gate.opened() {
            Some(opened) => {
                *at = (*at).max(opened.saturating_add(*offset));
                false
            }
            None => true,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_delays_what_is_behind_it() {
        let gate = Gate::closed();
        let mut finish = Finish::at(10);
        finish.hold(gate.clone());
        finish.extend(5, 0);
        assert_eq!(finish.time(), None);
        gate.open(100);
        assert_eq!(finish.time(), Some(105));
        finish.extend(1, 0);
        assert_eq!(finish.time(), Some(106));
        assert!(finish.is_past(106) && !finish.is_past(105));
    }

    #[test]
    fn work_starts_no_earlier_than_it_is_submitted() {
        let mut finish = Finish::at(10);
        finish.extend(5, 50);
        assert_eq!(finish.time(), Some(55));
    }
}
