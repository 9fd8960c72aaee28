//! Looks in a recording for the user's mark of the beginning of an iteration.

use rustc_hash::{FxHashMap, FxHashSet};

use super::beginning::{Beginning, Given, LEAST, begun_by, focuses, is_allocation};
use super::marker::{Likeness, Marker, RangeName, is_function};
use super::ranges::RangeNames;
use super::tokens::{Tokenizer, Tokens};
use super::{By, seen};
use crate::ledger::Focus;
use gpushim_recording::error::{Result, failed};
use gpushim_recording::symbols::short;
use gpushim_recording::{Names, Recording, calls};
use gpushim_trace::Kind;

impl Given {
    /// Looks for a marker. A name is looked for among the ranges first, then among the functions
    /// that allocate; a size among the allocations. If the memory of the focus does not have it,
    /// other memory is searched.
    ///
    /// # Errors
    /// The marker is not found, or only once; the error names the recording's own ranges, functions
    /// or sizes.
    pub fn find(recording: &dyn Recording, focus: Focus, marker: &Marker) -> Result<Given> {
        let path = recording.path().display();
        let found = match marker {
            Marker::Size(bytes) => of_size(recording, focus, *bytes),
            Marker::Name(name) => of_range(recording, focus, name)
                .or_else(|once| of_function(recording, focus, name).map_err(|also| once.max(also))),
        };
        found.map_err(|times| {
            let there = match (marker, times) {
                (_, 1) => "it comes only once".to_string(),
                (Marker::Size(_), _) => "no allocation is of that size".to_string(),
                (Marker::Name(_), _) => {
                    "no range has that name, and no function in the stack of an allocation"
                        .to_string()
                }
            };
            let known = match seen::of(recording, focus, marker) {
                Some(known) => format!("{known}; name one of these"),
                None => "nothing else in it repeats; record it with ranges or stacks".to_string(),
            };
            failed!(
                "find iterations by {marker} in {path}: {there} ({known}, or leave out --iteration)"
            )
        })
    }
}

/// Looks for ranges of a name; the error is the number of times that it was found.
fn of_range(recording: &dyn Recording, focus: Focus, name: &str) -> Result<Given, u64> {
    let wanted = Likeness::ALL.map(|likeness| RangeName {
        text: likeness.part(name),
        likeness,
    });
    let mut names = RangeNames::default();
    let mut is_wanted = FxHashMap::<String, [bool; 3]>::default();
    // For each way to compare names: the thread that begins such a range first, and their number.
    let mut found = [None::<((u32, u8), u64)>; 3];
    for record in recording.events() {
        let event = &record.event;
        if !matches!(event.kind, Kind::RangePush | Kind::RangeStart) {
            continue;
        }
        let name = names.of(recording, event.address);
        let matches = match is_wanted.get(name) {
            Some(matches) => *matches,
            None => {
                let matches = wanted.clone().map(|wanted| wanted.is(name));
                is_wanted.insert(name.to_string(), matches);
                matches
            }
        };
        let from = begun_by(event);
        for (found, _) in found.iter_mut().zip(matches).filter(|(_, is)| *is) {
            let (first, times) = found.get_or_insert((from, 0));
            *times += u64::from(*first == from);
        }
    }
    let times = |found: &Option<(_, u64)>| found.map_or(0, |(_, times)| times);
    let enough = wanted.into_iter().zip(&found);
    let mut enough = enough.filter(|(_, found)| times(found) >= LEAST);
    let Some((name, _)) = enough.next() else {
        return Err(found.iter().map(times).max().unwrap_or(0));
    };
    Ok(Given {
        by: By::Range(name.text.clone()),
        beginning: Beginning::Range(name),
        focus,
        is_certain: true,
    })
}

/// Looks for the first allocation in each call of a function; the error is the number of calls
/// found.
fn of_function(recording: &dyn Recording, focus: Focus, name: &str) -> Result<Given, u64> {
    let mut layers: Vec<_> = focuses(focus)
        .into_iter()
        .map(|focus| (focus, Tokenizer::new(focus), Tokens::of_at_least(LEAST)))
        .collect();
    let mut names = recording.names();
    let mut functions = Functions::new(name);
    // Per thread, true if its last allocation was in a call. `entries` counts the calls.
    let mut threads = FxHashMap::<u32, bool>::default();
    let mut entries = 0;
    for record in recording.events() {
        let tokens = layers.iter_mut().find_map(|(_, tokenizer, tokens)| {
            let token = tokenizer.token(recording, &record.event)?;
            Some((tokens, token))
        });
        let Some((tokens, By::Stack(stack))) = tokens else {
            continue;
        };
        let is_in = functions.are_in(&mut *names, stack);
        let was_in = threads.insert(record.event.thread, is_in);
        entries += u64::from(is_in && !was_in.unwrap_or(false));
        if is_in {
            tokens.feed(By::Stack(stack));
        }
    }
    let first = layers
        .iter()
        .find_map(|(focus, _, tokens)| Some((*focus, tokens.first_in_each()?)));
    let Some((focus, (token, times))) = first else {
        return Err(u64::from(!functions.found.is_empty()));
    };
    Ok(Given {
        by: By::Function(functions.name()),
        beginning: Beginning::Allocation(token),
        focus,
        is_certain: entries >= times.div_ceil(2),
    })
}

/// Looks for allocations of a size; the error is the number of times that it was found.
fn of_size(recording: &dyn Recording, focus: Focus, bytes: u64) -> Result<Given, u64> {
    let mut layers: Vec<(Focus, u64)> = focuses(focus).into_iter().map(|one| (one, 0)).collect();
    for record in recording.events() {
        let event = &record.event;
        if is_allocation(event)
            && event.size == bytes
            && let Some((_, times)) = layers.iter_mut().find(|(focus, _)| focus.holds(event))
        {
            *times += 1;
        }
    }
    let Some((focus, _)) = layers.iter().find(|(_, times)| *times >= LEAST) else {
        return Err(layers.iter().map(|(_, times)| *times).max().unwrap_or(0));
    };
    Ok(Given {
        by: By::Size(bytes),
        beginning: Beginning::Size(bytes),
        focus: *focus,
        is_certain: true,
    })
}

/// The functions that a name may refer to.
struct Functions<'a> {
    wanted: &'a str,
    found: FxHashSet<String>,
    stacks: FxHashMap<u32, bool>,
}

impl Functions<'_> {
    fn new(wanted: &str) -> Functions<'_> {
        Functions {
            wanted,
            found: FxHashSet::default(),
            stacks: FxHashMap::default(),
        }
    }

    /// Returns true if one of them is in a stack.
    fn are_in(&mut self, names: &mut dyn Names, stack: u32) -> bool {
        if let Some(known) = self.stacks.get(&stack) {
            return *known;
        }
        let frames = names.stack(stack);
        // The outermost calls the others.
        let outermost = calls(&frames)
            .filter(|symbol| is_function(symbol, self.wanted))
            .last();
        if let Some(symbol) = outermost {
            self.found.insert(short(&symbol.function));
        }
        self.stacks.insert(stack, outermost.is_some());
        outermost.is_some()
    }

    /// Returns the full function name if there is one, else the part that all have in common.
    fn name(&self) -> String {
        let mut found = self.found.iter();
        match (found.next(), found.next()) {
            (Some(only), None) => only.clone(),
            _ => self.wanted.to_string(),
        }
    }
}

#[cfg(test)]
mod tests;
