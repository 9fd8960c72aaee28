//! Finds the iterations of a run: by the ranges that the program announced, or by what repeats among its
//! allocations.

use rustc_hash::FxHashMap;
use serde::Serialize;

use super::walk::Focus;
use crate::recording::Recording;
use crate::trace::{Event, Kind, Record};

/// Fewer repetitions are no iterations.
const LEAST: u64 = 4;
/// Different tokens that are told apart; those that come after so many others are left out.
const TOKENS: usize = 1 << 18;
/// How much the distances between repetitions may vary: their deviation over their mean.
const VARIATION: f64 = 0.5;
/// How much of the run they must reach over: what only the first iterations do, say fill a cache, is none.
const REACH: f64 = 0.6;
/// Of the tokens that repeat, how many must follow the iterations.
const COVERED: f64 = 0.5;

/// What the iterations were recognised by.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum By {
    /// A range that the program announced, its name without numbers.
    Range(String),
    /// An allocation with this stack id.
    Stack(u32),
    /// Allocations of this size, bytes.
    Size(u64),
}

/// Where an iteration begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Start {
    /// Ns since the start of the recording.
    pub ns: u64,
    /// Its first event.
    pub ticket: u64,
}

/// The iterations of a run, one after the other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Iterations {
    /// What they were recognised by.
    pub by: By,
    /// Where each begins, and last where the last one ends: one more than there are iterations.
    pub starts: Vec<Start>,
}

impl Iterations {
    /// Looks for iterations; `None` if nothing repeats often enough.
    pub fn find(recording: &dyn Recording, focus: Focus) -> Option<Iterations> {
        let mut survey = Survey::new(focus);
        for record in recording.events() {
            survey.feed(recording, &record);
        }
        let by = survey.ranges.choose().or_else(|| survey.tokens.choose())?;
        Some(locate(recording, focus, by))
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.starts.len().saturating_sub(1)
    }

    /// Whether each is a range that the program announced.
    pub fn are_ranges(&self) -> bool {
        matches!(self.by, By::Range(_))
    }

    /// The iteration that an event is in; `None` before the first and after the last.
    pub fn of(&self, ticket: u64) -> Option<usize> {
        let after = self.starts.partition_point(|start| start.ticket <= ticket);
        (after > 0 && after < self.starts.len()).then(|| after - 1)
    }
}

/// A name without its numbers: `step 12` and `step 13` are one range.
pub fn without_numbers(name: &str) -> String {
    let mut plain = String::with_capacity(name.len());
    for letter in name.chars() {
        match (letter.is_ascii_digit(), plain.ends_with('#')) {
            (true, true) => {}
            (true, false) => plain.push('#'),
            (false, _) => plain.push(letter),
        }
    }
    plain
}

struct Survey {
    focus: Focus,
    ranges: Ranges,
    tokens: Tokens,
}

impl Survey {
    fn new(focus: Focus) -> Survey {
        Survey {
            focus,
            ranges: Ranges::default(),
            tokens: Tokens::default(),
        }
    }

    fn feed(&mut self, recording: &dyn Recording, record: &Record) {
        let event = &record.event;
        match event.kind {
            Kind::RangePush => self.ranges.push(recording, event),
            Kind::RangePop => self.ranges.pop(event),
            _ => {}
        }
        if let Some(by) = token(event, self.focus) {
            self.tokens.feed(by);
        }
    }
}

/// What an allocation is recognised by.
fn token(event: &Event, focus: Focus) -> Option<By> {
    let is_allocation = matches!(event.kind, Kind::Alloc | Kind::TensorAlloc) && event.result == 0;
    let counts = is_allocation
        && event.class.layer() == focus.layer
        && focus.device.is_none_or(|device| event.device == device);
    counts.then_some(match event.stack {
        0 => By::Size(event.size),
        stack => By::Stack(stack),
    })
}

/// Ranges by their names without numbers.
#[derive(Default)]
struct Ranges {
    names: FxHashMap<u64, String>,
    depths: FxHashMap<u32, u32>,
    /// How often, at which least depth, and after how many others it first began.
    seen: FxHashMap<String, (u64, u32, usize)>,
}

impl Ranges {
    fn push(&mut self, recording: &dyn Recording, event: &Event) {
        let depth = self.depths.entry(event.thread).or_default();
        *depth += 1;
        let name = self
            .names
            .entry(event.address)
            .or_insert_with(|| without_numbers(&recording.text(event.address).unwrap_or_default()));
        let order = self.seen.len();
        if order < TOKENS {
            let seen = self.seen.entry(name.clone()).or_insert((0, *depth, order));
            seen.0 += 1;
            seen.1 = seen.1.min(*depth);
        }
    }

    fn pop(&mut self, event: &Event) {
        let depth = self.depths.entry(event.thread).or_default();
        *depth = depth.saturating_sub(1);
    }

    /// A range whose name says that it is an iteration, or else the outermost that repeats; of several the
    /// one that came first.
    fn choose(&self) -> Option<By> {
        let says = |name: &str| {
            let name = name.to_ascii_lowercase();
            ["step", "iter", "batch"]
                .iter()
                .any(|word| name.contains(word))
        };
        let often = self.seen.iter().filter(|(_, (count, ..))| *count >= LEAST);
        let (name, _) =
            often.min_by_key(|(name, (_, depth, order))| (!says(name), *depth, *order))?;
        Some(By::Range(name.clone()))
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

#[derive(Default)]
struct Tokens {
    allocations: u64,
    seen: FxHashMap<By, Token>,
}

impl Tokens {
    fn feed(&mut self, by: By) {
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
    /// whole number of times as often.
    fn choose(&self) -> Option<By> {
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

/// Where the iterations begin and the last one ends.
fn locate(recording: &dyn Recording, focus: Focus, by: By) -> Iterations {
    let mut starts = Vec::new();
    // Of the thread that began one first: others may announce the same ranges beside it.
    let mut thread = None;
    let mut is_open = false;
    let mut end = None;
    let mut last = Start { ns: 0, ticket: 0 };
    let mut names = FxHashMap::default();
    for record in recording.events() {
        let here = Start {
            ns: record.ns,
            ticket: record.ticket,
        };
        let event = &record.event;
        last = here;
        match &by {
            By::Range(wanted) => {
                if event.kind == Kind::RangePush && thread.is_none_or(|one| one == event.thread) {
                    let is_wanted = *names.entry(event.address).or_insert_with(|| {
                        let name = recording.text(event.address).unwrap_or_default();
                        without_numbers(&name) == *wanted
                    });
                    if is_wanted {
                        thread = Some(event.thread);
                        starts.push(here);
                        is_open = true;
                    }
                } else if event.kind == Kind::RangePop && thread == Some(event.thread) && is_open {
                    // The pop after which the range is no longer among those open.
                    let mut open = recording.ranges(event.stack).into_iter();
                    is_open = open.any(|name| without_numbers(&name) == *wanted);
                    if !is_open {
                        end = Some(here);
                    }
                }
            }
            by => {
                if token(event, focus).as_ref() == Some(by) {
                    starts.push(here);
                }
            }
        }
    }
    let end = match &by {
        // What comes after the last range is no iteration.
        By::Range(_) => {
            end.filter(|end| starts.last().is_some_and(|start| start.ticket < end.ticket))
        }
        // The last one may have been cut off: it ends where it would have, if the run went on so long.
        _ => None,
    };
    starts.push(end.unwrap_or(Start {
        ns: last.ns,
        ticket: last.ticket.saturating_add(1),
    }));
    Iterations { by, starts }
}

#[cfg(test)]
mod tests;
