//! Iterations by what repeats among the allocations: the same function, or the same size.

use rustc_hash::FxHashMap;

use super::{By, LEAST};
use crate::ledger::Focus;
use crate::recording::Recording;
use gpushim_trace::{Event, Kind};

/// Different tokens that are told apart; those that come after so many others are left out.
const TOKENS: usize = 1 << 18;
/// How much the distances between repetitions may vary: their deviation over their mean.
const VARIATION: f64 = 0.5;
/// How much of the run they must reach over: what only the first iterations do, say fill a cache, is none.
const REACH: f64 = 0.6;
/// Of the tokens that repeat, how many must follow the iterations.
const COVERED: f64 = 0.5;

/// Tells what an allocation is recognised by.
#[derive(Debug)]
pub struct Tokenizer {
    focus: Focus,
    /// By stack: the first stack with the same frames, 0 without frames.
    stacks: FxHashMap<u32, u32>,
    frames: FxHashMap<u64, u32>,
}

impl Tokenizer {
    /// For the allocations of a focus.
    pub fn new(focus: Focus) -> Tokenizer {
        Tokenizer {
            focus,
            stacks: FxHashMap::default(),
            frames: FxHashMap::default(),
        }
    }

    /// What an event is recognised by, if it is such an allocation.
    pub fn token(&mut self, recording: &dyn Recording, event: &Event) -> Option<By> {
        let is_allocation =
            matches!(event.kind, Kind::Alloc | Kind::TensorAlloc) && event.result == 0;
        if !is_allocation || !self.focus.holds(event) {
            return None;
        }
        let frames = &mut self.frames;
        let stack = *self.stacks.entry(event.stack).or_insert_with(|| {
            match recording.frames(event.stack) {
                0 => 0,
                key => *frames.entry(key).or_insert(event.stack),
            }
        });
        Some(match stack {
            0 => By::Size(event.size),
            stack => By::Stack(stack),
        })
    }
}

/// How often a token came, and how far apart.
#[derive(Clone, Copy, Debug, Default)]
struct Token {
    count: u64,
    /// Allocations before its first and its last.
    first: u64,
    last: u64,
    /// Of the distances between them.
    squares: f64,
}

impl Token {
    /// Deviation over mean of the distances.
    fn variation(&self) -> f64 {
        let distances = self.count.saturating_sub(1) as f64;
        let mean = (self.last - self.first) as f64 / distances;
        let variance = (self.squares / distances - mean * mean).max(0.0);
        variance.sqrt() / mean
    }
}

/// The tokens of a run.
#[derive(Debug, Default)]
pub struct Tokens {
    allocations: u64,
    seen: FxHashMap<By, Token>,
}

impl Tokens {
    /// The next allocation.
    pub fn feed(&mut self, by: By) {
        let at = self.allocations;
        self.allocations += 1;
        let full = self.seen.len() >= TOKENS;
        let token = match self.seen.entry(by) {
            std::collections::hash_map::Entry::Vacant(_) if full => return,
            entry => entry.or_insert(Token {
                first: at,
                last: at,
                ..Token::default()
            }),
        };
        let distance = (at - token.last) as f64;
        token.squares += distance * distance;
        token.last = at;
        token.count += 1;
    }

    /// The token that comes once in each iteration, if there are any: most of what repeats then comes a
    /// whole number of times as often. If it is known about how many iterations there are at most, one
    /// that comes more often is none.
    pub fn choose(&self, most: Option<u64>) -> Option<By> {
        let mut often: Vec<(&By, Token)> = self
            .seen
            .iter()
            .filter(|(_, token)| token.count >= LEAST)
            .map(|(key, token)| (key, *token))
            .collect();
        often.sort_unstable_by_key(|(_, token)| token.first);
        let reach = (REACH * self.allocations as f64) as u64;
        let regular = often.iter().filter(|(_, token)| {
            token.last - token.first >= reach && token.variation() < VARIATION
        });
        let mut counts: Vec<u64> = regular.clone().map(|(_, token)| token.count).collect();
        counts.sort_unstable();
        counts.dedup();
        let most = most.map_or(u64::MAX, |most| most + most / 8 + 1);
        counts.retain(|count| *count <= most);
        let follows = |token: &Token, count: u64| {
            let times = (token.count + count / 2) / count;
            times > 0 && token.count.abs_diff(times * count) <= times
        };
        let covered = |count: u64| often.iter().filter(|(_, t)| follows(t, count)).count();
        // Where one more or less fits as well: what the most regular ones say.
        let exact = |count: u64| {
            let exact = regular.clone().filter(|(_, token)| token.count == count);
            exact
                .map(|(_, token)| 1.0 / (0.01 + token.variation()))
                .sum::<f64>()
        };
        let best = counts.into_iter().max_by(|a, b| {
            let by_cover = covered(*a).cmp(&covered(*b));
            by_cover
                .then(exact(*a).total_cmp(&exact(*b)))
                .then(a.cmp(b))
        })?;
        if (covered(best) as f64) < COVERED * often.len() as f64 {
            return None;
        }
        let once = regular.filter(|(_, token)| token.count == best);
        let (key, _) = once.min_by(|(_, a), (_, b)| a.variation().total_cmp(&b.variation()))?;
        Some((*key).clone())
    }
}
