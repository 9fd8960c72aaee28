//! One part: a first placement, and ever lower limits for as long as there are steps.

use std::thread;

use super::chance::Chance;
use super::eject::eject;
use super::greedy::{self, Fit};
use super::neighbours::Neighbours;
use super::parts::Part;
use super::search::{Found, Search};
use super::sections;
use super::skyline;
use super::{Block, Budget};

/// Pairs up to which blocks are fitted into gaps even if no steps are left.
const FITTED: u64 = 100_000;
/// Blocks up to which a part is searched, and steps that one descent to its leaves may take.
const SEARCHED: usize = 4_000;
const DIVE: u64 = 20_000_000;
/// Steps of a try in the first rounds, and how many rounds pass until it is twice as many.
const TRY: u64 = 3_000_000;
const ROUNDS: u32 = 4;
/// The goal itself is tried first, with this share of the steps that are left (a fourth); then limits above it. A goal that can be
/// reached is often reached so, and the way by other limits takes more steps.
const OF_GOAL: u64 = 4;
/// Tries at the same time. Not that of the machine's cores: the outcome is the same on every machine.
const TOGETHER: usize = 4;
/// Bytes of a thread's stack: a search goes as deep as there are blocks.
const STACK: usize = 64 << 20;

/// Whether there are too many pairs for the steps that are left: one order with both fits looks at each up to eight times, and may
/// take four times as many steps.
fn is_stacked(pairs: u64, budget: &Budget<'_>) -> bool {
    pairs > FITTED.max(budget.left() / 2)
}

/// A part, its best placement, and its neighbours if it is small enough to be searched.
pub struct Problem {
    part: Part,
    sections: usize,
    least: u64,
    offsets: Vec<u64>,
    top: u64,
    near: Option<Neighbours>,
    orders: Vec<Vec<u32>>,
}

/// What a try found, and its steps.
type Tried = (Found, u64);

impl Problem {
    /// Nothing is placed yet.
    pub fn new(mut part: Part) -> Problem {
        let sections = sections::in_sections(&mut part.lives);
        let live = sections::live(&part.lives, sections);
        Problem {
            least: live.into_iter().max().unwrap_or(0),
            offsets: Vec::new(),
            top: 0,
            near: None,
            orders: Vec::new(),
            sections,
            part,
        }
    }

    /// Bytes that lie below.
    pub fn base(&self) -> u64 {
        self.part.base
    }

    /// The least bytes that it needs.
    pub fn least(&self) -> u64 {
        self.least
    }

    /// Where it ends, with what lies below, in bytes.
    pub fn end(&self) -> u64 {
        self.part.base + self.top
    }

    /// Writes its offsets among those of all blocks.
    pub fn write(&self, offsets: &mut [u64]) {
        for (at, offset) in self.part.blocks.iter().zip(&self.offsets) {
            offsets[*at as usize] = self.part.base + offset;
        }
    }

    fn is_enough(&self, bytes: u64, budget: &Budget<'_>) -> bool {
        budget.is_enough(self.end(), bytes)
    }

    fn take(&mut self, offsets: Vec<u64>) {
        let top = greedy::top(&self.part.lives, &offsets);
        if self.offsets.is_empty() || top < self.top {
            (self.offsets, self.top) = (offsets, top);
        }
    }

    /// Places it in a first way. `bytes`: below this the whole cannot end anyway.
    pub fn begin(&mut self, bytes: u64, budget: &mut Budget<'_>) {
        let near = Neighbours::of(&self.part.lives);
        self.orders = greedy::orders(&self.part.lives, self.sections);
        let blocks = &self.part.lives;
        if is_stacked(near.pairs, budget) {
            let stacked = self.orders.iter();
            let stacked: Vec<_> = stacked
                .map(|order| skyline::stack(blocks, order, self.sections))
                .collect();
            budget.took(stacked.len() as u64 * blocks.len() as u64);
            for offsets in stacked {
                self.take(offsets);
            }
        } else {
            for order in self.orders.clone() {
                let blocks = &self.part.lives;
                let (both, steps) = both_fits(blocks, &near, &order);
                budget.took(steps);
                for offsets in both {
                    self.take(offsets);
                }
                if budget.left() == 0 || self.is_enough(bytes, budget) {
                    break;
                }
            }
            self.near = Some(near);
        }
    }

    /// Looks for a placement that ends as low as the whole can, `bytes`.
    pub fn descend(&mut self, bytes: u64, budget: &mut Budget<'_>) {
        let Some(near) = self.near.take() else {
            return;
        };
        // All offsets are multiples of this.
        let unit = self
            .part
            .lives
            .iter()
            .fold(0, |unit, block| gcd(unit, block.bytes));
        let unit = unit.max(1);
        let goal = self.least.max(bytes.saturating_sub(self.part.base));
        let (mut lowest, mut steps, mut is_first) = (goal, budget.left() / 20, true);
        while self.top > goal
            && !self.is_enough(self.part.base + self.least.max(goal), budget)
            && budget.left() > 0
        {
            let limit = if is_first {
                goal
            } else {
                lowest.midpoint(self.top) / unit * unit
            };
            let limit = limit.max(goal).min(self.top - 1);
            let most = if is_first {
                steps.max(budget.left() / OF_GOAL)
            } else {
                steps
            };
            is_first = false;
            match self.reach(&near, limit, most.min(budget.left()), budget) {
                Found::Fit(offsets) => self.take(offsets),
                Found::Never => {
                    self.least = self.least.max(limit + unit - limit % unit);
                    lowest = lowest.max(limit);
                }
                Found::Unknown => lowest = lowest.max(limit),
            }
            if self.top <= self.least {
                return;
            }
            if self.top <= lowest + unit.max(goal / 1000) {
                // From the beginning, and longer.
                (lowest, is_first) = (self.least.max(goal), true);
                steps *= 2;
                if self.top <= lowest + unit && lowest > goal {
                    return;
                }
            }
        }
    }

    /// Tries to end below a limit: searches in several orders, and the moving of blocks.
    fn reach(&self, near: &Neighbours, limit: u64, most: u64, budget: &mut Budget<'_>) -> Found {
        let (mut took, mut number) = (0, 0);
        while took < most {
            let steps = TRY << (number as u32 / (self.orders.len() as u32 * ROUNDS)).min(10);
            let tried = self.together(near, limit, steps.min(most), number);
            number += TOGETHER;
            let mut best: Option<Vec<u64>> = None;
            let mut is_impossible = false;
            let mut together = 0;
            for (found, steps) in tried {
                together += steps;
                match found {
                    Found::Fit(offsets) => {
                        let top = |offsets: &Vec<u64>| greedy::top(&self.part.lives, offsets);
                        if best.as_ref().is_none_or(|best| top(&offsets) < top(best)) {
                            best = Some(offsets);
                        }
                    }
                    Found::Never => is_impossible = true,
                    Found::Unknown => {}
                }
            }
            took += together.max(1);
            budget.took(together.max(1));
            if let Some(offsets) = best {
                return Found::Fit(offsets);
            }
            if is_impossible {
                return Found::Never;
            }
        }
        Found::Unknown
    }

    /// Several tries at the same time, from this number on.
    fn together(&self, near: &Neighbours, limit: u64, steps: u64, number: usize) -> Vec<Tried> {
        thread::scope(|scope| {
            let tries: Vec<_> = (number..number + TOGETHER)
                .map(|number| {
                    let attempt = move || self.attempt(near, limit, steps, number);
                    let thread = thread::Builder::new().stack_size(STACK);
                    thread.spawn_scoped(scope, attempt)
                })
                .collect();
            let done = tries.into_iter().map(|thread| {
                let done = thread.ok().and_then(|thread| thread.join().ok());
                done.unwrap_or((Found::Unknown, steps))
            });
            done.collect()
        })
    }

    /// One try.
    fn attempt(&self, near: &Neighbours, limit: u64, steps: u64, number: usize) -> Tried {
        let blocks = &self.part.lives;
        let mut chance = Chance::new(number as u64 + 1);
        let round = number / self.orders.len();
        let is_searched = blocks.len() <= SEARCHED && self.dive() <= DIVE;
        // After a round of searches every fourth try moves blocks.
        if !is_searched || (round > 0 && number.is_multiple_of(TOGETHER)) {
            let (found, steps) = eject(blocks, near, &self.offsets, limit, steps, chance);
            return (found.map_or(Found::Unknown, Found::Fit), steps);
        }
        let mut order = self.orders[number % self.orders.len()].clone();
        if round > 0 {
            shift(&mut order, &mut chance);
        }
        let search = Search::new(blocks, near, self.sections, &order, limit);
        search.run(steps.max(2 * self.dive()))
    }

    /// Steps that a search takes which never turns back, at most.
    fn dive(&self) -> u64 {
        let lives = self.part.lives.iter().flat_map(Block::lives);
        let length: usize = lives.map(|life| life.to - life.from + 2).sum();
        length as u64 * self.part.lives.len() as u64 / 2
    }
}

/// Both fits at the same time, and their steps.
fn both_fits(blocks: &[Block], near: &Neighbours, order: &[u32]) -> ([Vec<u64>; 2], u64) {
    let (lowest, smallest) = thread::scope(|scope| {
        let other = scope.spawn(|| greedy::fit(blocks, near, order, Fit::Smallest));
        let lowest = greedy::fit(blocks, near, order, Fit::Lowest);
        let smallest = other.join().unwrap_or_else(|_| lowest.clone());
        (lowest, smallest)
    });
    ([lowest.0, smallest.0], lowest.1 + smallest.1)
}

/// Moves each block a little in the order, by chance.
fn shift(order: &mut Vec<u32>, chance: &mut Chance) {
    let reach = 4 * order.len() as u64;
    let places = order.iter().enumerate();
    let mut shifted: Vec<(u64, u32)> = places
        .map(|(place, at)| (8 * place as u64 + chance.below(reach), *at))
        .collect();
    shifted.sort_unstable();
    *order = shifted.into_iter().map(|(_, at)| at).collect();
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
