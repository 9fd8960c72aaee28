//! Iterations by repetitions among the allocations: the same function, or the same size.

use rustc_hash::FxHashMap;

use super::{By, LEAST};
use crate::ledger::Focus;
use gpushim_recording::Recording;
use gpushim_trace::{Event, Kind};

/// Highest number of different tokens; later ones are left out.
const TOKENS: usize = 1 << 18;
/// Highest variation of the distances between repetitions: their deviation over their mean.
const VARIATION: f64 = 0.5;
/// Part of the run that the repetitions must reach over. Allocations of the first iterations alone,
/// as for a cache, do not count.
const REACH: f64 = 0.6;
/// Part of the best score at which a score is nearly the best.
const NEAR: f64 = 0.97;
/// Part of the run that the calls of a function must span, with the distance from one call to the
/// next.
const SPANS: f64 = 0.8;
/// Part of the tokens with even repetitions that must follow the iterations, and not by chance.
const COVERED: f64 = 0.3;

/// Finds the token by which an allocation is recognised.
#[derive(Debug)]
pub struct Tokenizer {
    focus: Focus,
    /// The first stack with the same frames, by stack; 0 without frames.
    stacks: FxHashMap<u32, u32>,
    frames: FxHashMap<u64, u32>,
}

impl Tokenizer {
    /// Creates a tokenizer for the allocations of a focus.
    pub fn new(focus: Focus) -> Tokenizer {
        Tokenizer {
            focus,
            stacks: FxHashMap::default(),
            frames: FxHashMap::default(),
        }
    }

    /// Returns the token of an event, if it is an allocation of the focus.
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

/// Number of a token's occurrences, and their distances.
#[derive(Clone, Copy, Debug, Default)]
struct Token {
    count: u64,
    /// Number of allocations before its first and its last occurrence.
    first: u64,
    last: u64,
    /// Sum of the squared distances.
    squares: f64,
}

impl Token {
    /// Returns the deviation of the distances over their mean.
    fn variation(&self) -> f64 {
        let distances = self.count.saturating_sub(1) as f64;
        let mean = (self.last - self.first) as f64 / distances;
        let variance = (self.squares / distances - mean * mean).max(0.0);
        variance.sqrt() / mean
    }

    /// Returns about how many times it occurs in each of `count` iterations.
    fn times(&self, count: u64) -> u64 {
        (self.count + count / 2) / count.max(1)
    }

    /// Returns true if it occurs a whole number of times in each of `count` iterations; one may be
    /// cut off.
    fn follows(&self, count: u64) -> bool {
        let times = self.times(count);
        times > 0 && self.count.abs_diff(times.saturating_mul(count)) <= times
    }

    /// Returns the probability that any token with this number of occurrences follows them.
    fn chance(&self, count: u64) -> f64 {
        ((2 * self.times(count) + 1) as f64 / count.max(1) as f64).min(1.0)
    }
}

/// Tokens that occur once in each iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Once {
    /// Number of their occurrences.
    pub count: u64,
    /// Number of different such tokens.
    pub kinds: usize,
}

/// The tokens of a run, counted.
#[derive(Debug)]
pub struct Tokens {
    /// Fewest occurrences that are iterations.
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
    /// Creates counts in which a token with fewer occurrences marks no iterations.
    pub fn of_at_least(least: u64) -> Tokens {
        Tokens {
            least,
            allocations: 0,
            seen: FxHashMap::default(),
        }
    }

    /// Takes the token of the next allocation.
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

    /// Returns a token that occurs once in each iteration, if there is one. Most repeated tokens
    /// must then occur a whole number of times as often. `most` is the highest number of
    /// iterations, if known; a token with more occurrences is none.
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
        // A few repetitions may be followed by chance.
        let score = |count: u64| {
            let follows = regular.clone().filter(|(_, token)| token.follows(count));
            follows
                .map(|(_, token)| 1.0 - token.chance(count))
                .sum::<f64>()
        };
        // If one more or less fits as well, the most regular tokens decide.
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
        // Tokens that do not follow this count by chance alone.
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

    /// Returns the first token in each call, and its occurrences, if all tokens belong to calls of
    /// one function or a few. Returns `None` if none repeats.
    pub fn first_in_each(&self) -> Option<(By, u64)> {
        let often = || {
            let all = self.seen.iter();
            all.filter(|(_, token)| token.count >= self.least)
        };
        // A few calls do not explain the allocations after them. A token of each call spans the
        // run.
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
