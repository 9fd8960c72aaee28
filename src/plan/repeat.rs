//! Where a sequence begins to repeat itself, and how long what it repeats is.

/// A part of a sequence in which each item is that of a period before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Period {
    pub from: usize,
    pub to: usize,
    pub length: usize,
}

/// How often it must be there.
const TIMES: usize = 3;
/// Positions before the end from which the search starts, since a run ends differently than it goes on.
const ENDS: usize = 16;

/// The longest part that repeats itself at least three times, with its shortest period.
pub fn find(tokens: &[u64]) -> Option<Period> {
    let ends = (0..ENDS).map(|k| tokens.len() - tokens.len() / ENDS * k);
    let found = ends.filter_map(|end| ending(tokens.get(..end)?));
    // Of those that are equally long the one found first, from the end of the run.
    found.fold(None, |best: Option<Period>, next| match best {
        Some(best) if best.to - best.from >= next.to - next.from => Some(best),
        _ => Some(next),
    })
}

/// That part which ends where the sequence does.
fn ending(tokens: &[u64]) -> Option<Period> {
    let matches = matches_from_the_end(tokens);
    let mut best: Option<(usize, usize)> = None;
    for (length, matching) in matches.iter().enumerate().skip(1) {
        let whole = length + matching;
        if whole >= TIMES * length && best.is_none_or(|(most, _)| whole > most) {
            best = Some((whole, length));
        }
    }
    best.map(|(whole, length)| Period {
        from: tokens.len() - whole,
        to: tokens.len(),
        length,
    })
}

/// For each distance: how many items before the end are equal to those so far before them. (The Z function, from
/// the end: Gusfield, Algorithms on Strings, 1997.)
fn matches_from_the_end(tokens: &[u64]) -> Vec<usize> {
    let count = tokens.len();
    let item = |at: usize| count.checked_sub(at + 1).and_then(|at| tokens.get(at));
    let mut matches = vec![0; count];
    let (mut left, mut right) = (0, 0);
    for at in 1..count {
        let mut known: usize = 0;
        if at < right {
            let mirrored = matches.get(at - left).copied().unwrap_or(0);
            known = mirrored.min(right - at);
        }
        while at + known < count && item(known) == item(at + known) {
            known += 1;
        }
        if let Some(place) = matches.get_mut(at) {
            *place = known;
        }
        if at + known > right {
            (left, right) = (at, at + known);
        }
    }
    matches
}
