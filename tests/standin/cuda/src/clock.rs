//! Vector clocks: for each lane of work, the last item known to be ordered before.

/// Index of a lane: one sequence of work (a stream).
pub type Lane = u32;

/// Number of the last item of each lane that is ordered before the clock's owner.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Clock(Vec<u64>);

impl Clock {
    /// Returns the number of the last item of `lane` that is ordered before.
    pub fn get(&self, lane: Lane) -> u64 {
        self.0.get(lane as usize).copied().unwrap_or(0)
    }

    /// True if item `seq` of `lane` is ordered before.
    pub fn covers(&self, lane: Lane, seq: u64) -> bool {
        self.get(lane) >= seq
    }

    /// Marks every item of `lane` up to `seq` as ordered before. Never lowers the number.
    pub fn advance(&mut self, lane: Lane, seq: u64) {
        let index = lane as usize;
        if self.0.len() <= index {
            self.0.resize(index + 1, 0);
        }
        self.0[index] = self.0[index].max(seq);
    }

    /// True if every item that `other` covers is covered here.
    pub fn includes(&self, other: &Clock) -> bool {
        let mut lanes = other.0.iter().enumerate();
        lanes.all(|(lane, seq)| self.covers(lane as Lane, *seq))
    }

    /// Covers every item that `other` covers. Returns true if the clock changed.
    pub fn join(&mut self, other: &Clock) -> bool {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        let mut news = false;
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            if *mine < *theirs {
                *mine = *theirs;
                news = true;
            }
        }
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joins_and_covers() {
        let (mut a, mut b) = (Clock::default(), Clock::default());
        a.advance(0, 3);
        b.advance(5, 2);
        assert!(!a.includes(&b) && !b.includes(&a));
        assert!(a.join(&b));
        assert!(a.includes(&b) && !b.includes(&a));
        assert!(!a.join(&b));
        assert!(a.covers(0, 3) && a.covers(5, 2) && !a.covers(5, 3) && a.covers(9, 0));
        a.advance(0, 1);
        assert_eq!(a.get(0), 3);
    }
}
