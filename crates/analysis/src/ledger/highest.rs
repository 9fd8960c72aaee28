//! The highest level of live memory by stretch of a run: a coarse picture, which rules out some
//! findings.

/// Highest number of stretches.
const MOST: usize = 256;

/// A part of a run, with its highest level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stretch {
    /// The most that was live after an allocation, bytes.
    pub highest: u64,
    /// Number of bytes allocated.
    pub allocated: u64,
}

/// All stretches of a run, of equally many allocations each.
#[derive(Clone, Debug)]
pub struct Highest {
    all: Vec<Stretch>,
    /// Allocations of a stretch; `in_last` are the allocations of the last one.
    each: u64,
    in_last: u64,
}

impl Default for Highest {
    fn default() -> Highest {
        Highest {
            all: Vec::new(),
            each: 1,
            in_last: 1,
        }
    }
}

impl Highest {
    /// Records an allocation of this many bytes, and the bytes that are live after it.
    pub fn allocated(&mut self, bytes: u64, live: u64) {
        if self.in_last >= self.each {
            if self.all.len() >= MOST {
                self.halve();
            }
            self.all.push(Stretch::default());
            self.in_last = 0;
        }
        self.in_last += 1;
        if let Some(last) = self.all.last_mut() {
            last.highest = last.highest.max(live);
            last.allocated = last.allocated.saturating_add(bytes);
        }
    }

    /// Joins each two stretches into one.
    fn halve(&mut self) {
        let pairs = self.all.chunks(2).map(|pair| Stretch {
            highest: pair.iter().map(|one| one.highest).max().unwrap_or(0),
            allocated: pair
                .iter()
                .fold(0, |sum, one| one.allocated.saturating_add(sum)),
        });
        self.all = pairs.collect();
        self.each = self.each.saturating_mul(2);
    }

    /// Returns the stretches, the first one first.
    pub fn stretches(&self) -> &[Stretch] {
        &self.all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_and_sums_survive_that_stretches_grow() {
        let mut highest = Highest::default();
        for at in 0..10_000_u64 {
            let live = if at == 7_000 { 5_000 } else { at % 50 };
            highest.allocated(2, live);
        }
        let all = highest.stretches();
        assert!((MOST / 2..=MOST).contains(&all.len()), "{}", all.len());
        let sum: u64 = all.iter().map(|one| one.allocated).sum();
        assert_eq!(sum, 20_000);
        let most = all.iter().position(|one| one.highest == 5_000).unwrap();
        assert_eq!(most, 7_000 / 64);
        assert!(all.iter().take(most).all(|one| one.highest == 49));
    }
}
