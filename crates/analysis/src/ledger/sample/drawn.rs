//! Runs drawn by a seed: trainings and generations of many kinds, without a fault or with a planted
//! one.

use super::Training;

/// Random numbers by a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }

    /// Returns true once in `of` calls, on average.
    fn once_in(&mut self, of: u64) -> bool {
        self.below(of) == 0
    }
}

impl Training {
    /// A run in which nothing is left behind.
    pub fn clean(seed: u64) -> Training {
        let mut dice = Dice(seed);
        let steps = 4 + dice.below(57);
        let (stacks, python) = match dice.below(3) {
            0 => (false, false),
            1 => (true, false),
            _ => (true, true),
        };
        let mut or_never = |of: u64, value: u64| if dice.once_in(of) { value } else { 0 };
        let how = Training {
            steps,
            evaluates_every: or_never(3, 2 + seed % 9),
            threads: or_never(5, 1 + seed % 3),
            reads_losses_every: or_never(5, 2 + seed % 7),
            state_at: or_never(4, seed % 4),
            generates: or_never(6, 16 + seed % 33),
            ..Training::default()
        };
        let steps = if how.generates > 0 {
            steps.min(24)
        } else {
            steps
        };
        Training {
            steps,
            layers: 2 + dice.below(if how.generates > 0 { 3 } else { 10 }),
            ranges: dice.once_in(3),
            stacks,
            python,
            varies: dice.once_in(2),
            cache: if dice.once_in(4) {
                (1 + dice.below(steps / 3 + 1), 300_000 + dice.below(4 << 20))
            } else {
                (0, 0)
            },
            takes_down: dice.once_in(2),
            micro_batches: if dice.once_in(3) {
                2 + dice.below(4)
            } else {
                1
            },
            recomputes: dice.once_in(4),
            weights_at: dice.once_in(6).then(|| dice.below(steps)),
            has_workspaces: dice.once_in(5),
            prefetches: dice.once_in(4),
            has_temporaries: true,
            keeps_gradients: dice.once_in(6),
            joins: dice.once_in(2),
            is_wrapped: dice.once_in(4),
            seed: seed + 1,
            ..how
        }
    }

    /// A clean run with a leak of 1 KiB to 64 MiB added in each step, or in each of a few.
    pub fn leaking(seed: u64) -> Training {
        let clean = Training::clean(seed);
        let mut dice = Dice(!seed);
        let magnitude = 10 + dice.below(16);
        Training {
            leak: (1 << magnitude) + dice.below(1 << magnitude) / 512 * 512,
            leaks_every: [1, 1, 1, 2, 3][dice.below(5) as usize],
            steps: clean.steps.max(10),
            // Sequences of tokens have iterations of two kinds; ranges show which are meant.
            ranges: clean.ranges || clean.generates > 0,
            ..clean
        }
    }
}
