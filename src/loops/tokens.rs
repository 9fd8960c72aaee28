//! Iterations by what repeats among the allocations: the same function, or the same size.

use rustc_hash::FxHashMap;

use super::{By, LEAST};
use crate::ledger::Focus;
use crate::recording::Recording;
use gpushim_trace::{Event, Kind};

/// The most different tokens; later ones are left out.
const TOKENS: usize = 1 << 18;
/// How much the distances between repetitions may vary: their deviation over their mean.
const VARIATION: f64 = 0.5;
/// How much of the run they must reach over: what only the first iterations do, say fill a cache, is none.
const REACH: f64 = 0.6;
/// What is nearly as good as the best.
const NEAR: f64 = 0.97;
/// The same of what comes in each call of a function, with the time from one to the next.
const SPANS: f64 = 0.8;
/// Of the tokens that repeat evenly, how many must follow the iterations, and not by chance.
const COVERED: f64 = 0.3;

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

    /// How often it comes in each of `count` iterations, about.
    fn times(&self, count: u64) -> u64 {
        (self.count + count / 2) / count.max(1)
    }

    /// Whether it comes a whole number of times in each of `count` iterations; one may be cut off.
    fn follows(&self, count: u64) -> bool {
        let times = self.times(count);
        times > 0 && self.count.abs_diff(times.saturating_mul(count)) <= times
    }

    /// How probable that is of any token that comes so often.
    fn chance(&self, count: u64) -> f64 {
        ((2 * self.times(count) + 1) as f64 / count.max(1) as f64).min(1.0)
    }
}

/// What comes once in each iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Once {
    /// How often.
    pub count: u64,
    /// How many tokens do.
    pub kinds: usize,
}

/// The tokens of a run.
#[derive(Debug)]
pub struct Tokens {
    /// Fewer of one are no iterations.
    least: u64,
    allocations: u64,
    seen: FxHashMap<By, Token>,
}

impl Default for Tokens {
    fn default() -> Tokens {
        Tokens::of_at_least(LEAST)
    }
}

impl Tokens {
    /// Of which one that comes less often marks no iterations.
    pub fn of_at_least(least: u64) -> Tokens {
        Tokens {
            least,
            allocations: 0,
            seen: FxHashMap::default(),
        }
    }

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

    /// A token that comes once in each iteration, if there are any: most of what repeats then comes a
    /// whole number of times as often. If it is known about how many iterations there are at most, one
    /// that comes more often is none.
    pub fn choose(&self, most: Option<u64>) -> Option<(By, Once)> {
        let mut often: Vec<(&By, Token)> = self
            .seen
            .iter()
            .filter(|(_, token)| token.count >= self.least)
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
        // A few repetitions are followed by chance.
        let score = |count: u64| {
            let follows = regular.clone().filter(|(_, token)| token.follows(count));
            follows
                .map(|(_, token)| 1.0 - token.chance(count))
                .sum::<f64>()
        };
        // Where one more or less fits as well: what the most regular ones say.
        let exact = |count: u64| {
            let exact = regular.clone().filter(|(_, token)| token.count == count);
            exact
                .map(|(_, token)| 1.0 / (0.01 + token.variation()))
                .sum::<f64>()
        };
        let scored: Vec<(u64, f64)> = counts.iter().map(|count| (*count, score(*count))).collect();
        let (highest, most) = *scored.iter().max_by(|(_, a), (_, b)| a.total_cmp(b))?;
        let near = scored
            .iter()
            .filter(|(count, score)| *score >= NEAR * most || count.abs_diff(highest) <= 1);
        let (best, _) =
            *near.max_by(|(a, _), (b, _)| exact(*a).total_cmp(&exact(*b)).then(a.cmp(b)))?;
        // Those that say something of this count.
        let telling = regular
            .clone()
            .filter(|(_, token)| token.chance(best) < 1.0);
        let most = telling
            .clone()
            .map(|(_, token)| 1.0 - token.chance(best))
            .sum::<f64>();
        let enough = COVERED * regular.clone().count() as f64;
        if score(best) < COVERED * most || (telling.count() as f64) < enough {
            return None;
        }
        let once = regular.filter(|(_, token)| token.count == best);
        let kinds = once.clone().count();
        let (key, _) = once.min_by(|(_, a), (_, b)| a.variation().total_cmp(&b.variation()))?;
        Some(((*key).clone(), Once { count: best, kinds }))
    }

    /// Of tokens that are all of calls of one function, or of a few: the first in each call, and how often it comes. `None`
    /// if none repeats.
    pub fn first_in_each(&self) -> Option<(By, u64)> {
        let often = || {
            let all = self.seen.iter();
            all.filter(|(_, token)| token.count >= self.least)
        };
        // A few calls say nothing of what follows them. What comes in each of them comes from the first to the last.
        let spans = |token: &Token| {
            let period = (token.last - token.first) as f64 / (token.count - 1) as f64;
            period * token.count as f64 >= SPANS * self.allocations as f64
        };
        let rarest = || {
            let lasting = often().filter(|(_, token)| spans(token));
            let rarest = lasting.map(|(_, token)| token.count).min();
            rarest.or_else(|| often().map(|(_, token)| token.count).min())
        };
        let count = self.choose(None).map(|(_, once)| once.count);
        let count = count.or_else(rarest)?;
        let once = often().filter(|(_, token)| token.count == count);
        let (first, _) = once.min_by_key(|(_, token)| token.first)?;
        Some((first.clone(), count))
    }
}
