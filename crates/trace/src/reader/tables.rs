//! Tables of entries that events refer to by a number: texts, stacks, modules, sites, names of
//! generated code.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Trace;
use super::bytes::Bytes;
use super::header::Parts;
use crate::jit::{self, JitMap};
use crate::layout::PartKind;
use crate::modules::{self, Module};
use crate::sites::{self, Site};
use crate::stacks::{self, StackNode};
use crate::streams::Streams;
use crate::strings;

/// Tables that do not change while a trace is open.
#[derive(Debug)]
pub struct Tables {
    modules: Vec<Module>,
    jit: OnceLock<JitMap>,
    streams: OnceLock<Streams>,
}

/// Numbers of entries that did not fit into a file, or are incomplete for this reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    /// Texts that are missing: their ids are 0.
    pub strings: u64,
    /// Stacks that lack their innermost frames, and ranges that are missing.
    pub stacks: u64,
    /// Modules that are missing.
    pub modules: u64,
    /// Names of generated code that are missing.
    pub jit: u64,
    /// Frames of interpreters that are missing in stacks.
    pub sites: u64,
}

/// Iterator over a stack, from the innermost frame to the outermost. Then the ranges that were open
/// on the thread follow, the innermost first. Bounded for any content of the file.
#[derive(Debug)]
pub struct Stack<'a>(stacks::Stack<'a, AtomicU64>);

impl Iterator for Stack<'_> {
    type Item = StackNode;

    fn next(&mut self) -> Option<StackNode> {
        self.0.next()
    }
}

impl Tables {
    /// Reads the small tables, and checks the others.
    pub fn scan(bytes: &Bytes, parts: &Parts, problems: &mut Vec<String>) -> Tables {
        let part = words(bytes, parts, PartKind::Modules, modules::layout::WORDS);
        let (modules, senseless) = modules::modules(part.words, part.each);
        if senseless > 0 {
            problems.push(format!(
                "{senseless} records of the modules make no sense: left out"
            ));
        }
        let part = words(bytes, parts, PartKind::Stacks, stacks::layout::WORDS);
        let broken = stacks::broken(part.words, part.each);
        if broken > 0 {
            problems.push(format!(
                "{broken} nodes of the stacks make no sense: stacks end there"
            ));
        }
        Tables {
            modules,
            jit: OnceLock::new(),
            streams: OnceLock::new(),
        }
    }
}

impl Trace {
    /// Returns the text of an id; `None` for 0 and for an id of no text.
    pub fn string(&self, id: u32) -> Option<String> {
        strings::text(self.table(PartKind::Strings, 1).words, id)
    }

    /// Returns the stack of an event's stack id, empty for 0. It ends where the file is damaged.
    pub fn stack(&self, id: u32) -> Stack<'_> {
        let part = self.table(PartKind::Stacks, stacks::layout::WORDS);
        Stack(stacks::Stack::of(part.words, part.each, id))
    }

    /// Returns the handle of the stream of a tensor, by the number in its event
    /// ([`Event::stream`](crate::Event::stream)); 0 is the default stream. `None` if it is unknown.
    pub fn stream(&self, number: u8) -> Option<u64> {
        let streams = self
            .tables
            .streams
            .get_or_init(|| Streams::of(self.facts()));
        streams.handle(number)
    }

    /// Returns the place in source code of an id; `None` for an id of no site.
    pub fn site(&self, id: u32) -> Option<Site> {
        let part = self.table(PartKind::Sites, sites::layout::WORDS);
        sites::site(part.words, part.each, id)
    }

    /// Returns the return addresses of all stacks, some of them several times.
    pub fn return_addresses(&self) -> impl Iterator<Item = u64> + '_ {
        let part = self.table(PartKind::Stacks, stacks::layout::WORDS);
        let counted = part.words.get(stacks::layout::HANDED_OUT);
        let counted = counted.map_or(0, |word| word.load(Ordering::Relaxed));
        // No more than there are words for.
        let end = counted
            .saturating_add(stacks::layout::FIRST.into())
            .min((part.words.len() / part.each.max(1)) as u64);
        let end = u32::try_from(end).unwrap_or(u32::MAX);
        (stacks::layout::FIRST..end).filter_map(move |id| {
            match stacks::node(part.words, part.each, id) {
                Some((_, Some(StackNode::Frame(address)))) => Some(address),
                _ => None,
            }
        })
    }

    /// Returns the programs and libraries that had been loaded at [`Trace::open`], in the order in
    /// which the writer saw them.
    pub fn modules(&self) -> &[Module] {
        &self.tables.modules
    }

    /// Returns the name of code that is in no file, by an address within it.
    pub fn jit_name(&self, address: u64) -> Option<String> {
        let part = || self.table(PartKind::Jit, jit::layout::WORDS);
        let map = self.tables.jit.get_or_init(|| {
            let part = part();
            JitMap::of(part.words, part.each)
        });
        self.string(map.name(address)?)
    }

    /// Returns the numbers of entries that did not fit.
    pub fn cut(&self) -> Cut {
        let cut = |kind, at: usize| {
            let words = self.table(kind, 1).words;
            words.get(at).map_or(0, |word| word.load(Ordering::Relaxed))
        };
        Cut {
            strings: cut(PartKind::Strings, strings::layout::CUT),
            stacks: cut(PartKind::Stacks, stacks::layout::CUT),
            modules: cut(PartKind::Modules, modules::layout::CUT),
            jit: cut(PartKind::Jit, jit::layout::CUT),
            sites: cut(PartKind::Sites, sites::layout::CUT),
        }
    }

    fn table(&self, kind: PartKind, least: usize) -> Words<'_> {
        words(&self.bytes, &self.parts, kind, least)
    }
}

/// Words of a part, as many as the file has, and the number of words of an entry.
struct Words<'a> {
    words: &'a [AtomicU64],
    each: usize,
}

/// Returns the words of a part whose entries have at least `least` words; none if there is no such
/// part.
fn words<'a>(bytes: &'a Bytes, parts: &Parts, kind: PartKind, least: usize) -> Words<'a> {
    let part = parts
        .get(kind)
        .filter(|part| part.stride.is_multiple_of(8) && part.stride / 8 >= least as u64);
    let words = part.map(|part| bytes.available(part.offset, part.length));
    Words {
        words: words.unwrap_or_default(),
        each: part.map_or(least, |part| {
            usize::try_from(part.stride / 8).unwrap_or(usize::MAX)
        }),
    }
}

#[cfg(test)]
mod tests;
