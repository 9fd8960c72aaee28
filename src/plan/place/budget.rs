//! How much is done for a plan.

/// How much is done for all placements together.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Steps: looks at a block or at one of its neighbours, 2 to 10 ns each.
    pub steps: u64,
    /// A placement is good enough if it ends in the same unit of this many bytes as the least that is possible.
    pub unit: u64,
}

impl Effort {
    /// For a plan that is written: some seconds on two cores; pages of 2 MiB, of which a pool's memory is made.
    pub const USUAL: Effort = Effort {
        steps: 300_000_000,
        unit: 2 << 20,
    };
    /// For an estimate: a tenth of that.
    pub const QUICK: Effort = Effort {
        steps: 30_000_000,
        ..Effort::USUAL
    };
}

/// Who wants to know how far the search is: steps done, and of how many.
pub type Watch<'a> = &'a mut dyn FnMut(u64, u64);

/// The steps of an effort, which placements take one after the other.
pub struct Budget<'a> {
    effort: Effort,
    done: u64,
    /// The count of done steps at which the present share ends.
    until: u64,
    watch: Watch<'a>,
}

impl Budget<'_> {
    /// Of which no step is taken.
    pub fn new(effort: Effort, watch: Watch<'_>) -> Budget<'_> {
        Budget {
            effort,
            done: 0,
            until: effort.steps,
            watch,
        }
    }

    /// Works with an equal share of the steps that are left, for the first of `among` works that are still to be done.
    /// The others have what it does not take.
    pub fn share<T>(&mut self, among: usize, work: impl FnOnce(&mut Self) -> T) -> T {
        let until = self.until;
        self.until = self.done + self.left() / among.max(1) as u64;
        let made = work(self);
        self.until = until;
        made
    }

    /// Steps that are left of the share.
    pub(super) fn left(&self) -> u64 {
        self.until.saturating_sub(self.done)
    }

    /// Steps were taken. A work that cannot be done in its share may take more than are left.
    pub(super) fn took(&mut self, steps: u64) {
        self.done = self.done.saturating_add(steps);
        (self.watch)(self.done.min(self.effort.steps), self.effort.steps);
    }

    /// Whether a placement that ends at `bytes` is good enough where none ends below `least`.
    pub(super) fn is_enough(&self, bytes: u64, least: u64) -> bool {
        bytes.div_ceil(self.effort.unit) <= least.div_ceil(self.effort.unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn works_share_the_steps_and_leave_what_they_do_not_take() {
        let effort = Effort {
            steps: 100,
            unit: 1,
        };
        let mut seen = Vec::new();
        let mut watch = |done, of| seen.push((done, of));
        let mut budget = Budget::new(effort, &mut watch);
        budget.share(2, |budget| {
            assert_eq!(budget.left(), 50);
            budget.took(10);
        });
        budget.share(1, |budget| {
            assert_eq!(budget.left(), 90);
            budget.share(3, |budget| {
                assert_eq!(budget.left(), 30);
                budget.took(40);
                assert_eq!(budget.left(), 0, "more than its share");
            });
            assert_eq!(budget.left(), 50);
            budget.share(1, |budget| budget.took(80));
        });
        assert_eq!(budget.left(), 0);
        assert_eq!(seen, [(10, 100), (50, 100), (100, 100)]);
    }
}
