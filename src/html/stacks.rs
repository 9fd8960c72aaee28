//! Stacks as a page has them: every text, frame and node once.
//!
//! Open ranges are left out, so that the same code is one stack in each iteration.

use std::hash::Hash;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::pack::Pack;
use crate::error::Result;
use crate::ledger::{Block, MADE_BEFORE};
use crate::loops::without_numbers;
use crate::output::units;
use crate::recording::{Frame, Names, Owners, blame};
use crate::symbols::{Kind, Symbol};
use gpushim_trace::{Class, cut_to};

/// The most stacks; the others count as one.
const MOST: usize = 1 << 15;
/// Longer texts are cut: C++ names reach kilobytes.
const TEXT_MOST: usize = 400;

/// Sort of a frame, for the page.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Sort {
    Native = 0,
    Python = 1,
    /// Nothing but a module and an offset is known.
    Unknown = 2,
    /// No code at all: a range or a size, where no stack was recorded.
    Instead = 3,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct PageFrame {
    name: u32,
    place: u32,
    sort: Sort,
    /// True if the frame is above the line: no allocator, runtime or interpreter.
    is_above: bool,
}

/// Things once each, by their number.
struct Once<T> {
    numbers: FxHashMap<T, u32>,
    all: Vec<T>,
}

impl<T: Clone + Eq + Hash> Once<T> {
    fn new() -> Once<T> {
        Once {
            numbers: FxHashMap::default(),
            all: Vec::new(),
        }
    }

    fn number(&mut self, thing: T) -> u32 {
        *self.numbers.entry(thing).or_insert_with_key(|thing| {
            self.all.push(thing.clone());
            (self.all.len() - 1) as u32
        })
    }
}

/// The stacks, and all texts of a page.
pub struct Stacks<'a> {
    names: Box<dyn Names + 'a>,
    texts: Once<String>,
    frames: Once<PageFrame>,
    /// Parent, counted from 1 with 0 for none, and frame.
    nodes: Once<(u32, u32)>,
    /// Innermost node, the frame of the function responsible, and the text of who keeps it, each
    /// counted from 1.
    stacks: Once<(u32, u32, u32)>,
    /// By id, group of sizes, and text of the owner.
    known: FxHashMap<(u32, u32, u32), u32>,
    owners: Arc<Owners>,
    has_frames: bool,
}

impl<'a> Stacks<'a> {
    /// None yet; these name them.
    pub fn new(names: Box<dyn Names + 'a>, owners: Arc<Owners>) -> Stacks<'a> {
        let mut stacks = Stacks {
            names,
            owners,
            texts: Once::new(),
            frames: Once::new(),
            nodes: Once::new(),
            stacks: Once::new(),
            known: FxHashMap::default(),
            has_frames: false,
        };
        // Stack 0: those beyond the bound.
        let more = stacks.instead("more stacks");
        let node = stacks.nodes.number((0, more)) + 1;
        stacks.stacks.number((node, more + 1, 0));
        stacks
    }

    /// Number of a text in the page.
    pub fn text(&mut self, text: &str) -> u32 {
        let kept = cut_to(text, TEXT_MOST);
        let more = if kept.len() < text.len() { "…" } else { "" };
        self.texts.number(format!("{kept}{more}"))
    }

    /// Number of the page's stack of an allocation.
    ///
    /// Allocations without a recorded stack are distinguished by the open ranges, without their
    /// numbers, and by the requested size.
    pub fn stack(&mut self, id: u32, class: Class, size: u64) -> u32 {
        self.owned(id, class, size, 0)
    }

    /// The page's stack of a block, which also depends on the block's owner.
    pub fn of_block(&mut self, block: &Block) -> u32 {
        let owner = self.owner(block);
        self.owned(block.stack, block.class, block.size, owner)
    }

    fn owned(&mut self, id: u32, class: Class, size: u64, owner: u32) -> u32 {
        let octave = size.checked_ilog2().map_or(0, |log| log + 1);
        let coarse = (id, 1 + octave + (class as u32) * 100, owner);
        for key in [(id, 0, owner), coarse] {
            if let Some(known) = self.known.get(&key) {
                return *known;
            }
        }
        let frames = self.names.stack(id);
        let is_call = |frame: &&Frame| matches!(frame, Frame::Call(_));
        let is_recorded = frames.iter().any(|frame| is_call(&frame));
        let key = if is_recorded { (id, 0, owner) } else { coarse };
        let number = if self.stacks.all.len() >= MOST {
            0
        } else {
            let (node, blamed) = match is_recorded {
                true => self.recorded(&frames),
                false => self.not_recorded(&frames, class, octave),
            };
            self.stacks.number((node, blamed, owner))
        };
        self.known.insert(key, number);
        number
    }

    /// The page's stack of blocks that were made before the recording began, and have none.
    pub fn unseen(&mut self) -> u32 {
        let frame = self.instead(MADE_BEFORE);
        let node = self.nodes.number((0, frame)) + 1;
        self.stacks.number((node, frame + 1, 0))
    }

    /// The text of who keeps a block, counted from 1; 0 if it is not known.
    fn owner(&mut self, block: &Block) -> u32 {
        let owners = Arc::clone(&self.owners);
        let owner = owners.of_block(block.class.layer(), block.address, block.ticket);
        owner.map_or(0, |owner| self.text(&owner.in_words()) + 1)
    }

    fn recorded(&mut self, frames: &[Frame]) -> (u32, u32) {
        self.has_frames = true;
        let symbols: Vec<&Symbol> = frames
            .iter()
            .filter_map(|frame| match frame {
                Frame::Call(symbols) => Some(symbols.iter()),
                Frame::Range(_) => None,
            })
            .flatten()
            .collect();
        let mut node = 0;
        for symbol in symbols.into_iter().rev() {
            let frame = self.frame(symbol);
            node = self.nodes.number((node, frame)) + 1;
        }
        let blamed = blame(frames).map_or(0, |symbol| self.frame(symbol) + 1);
        (node, blamed)
    }

    fn not_recorded(&mut self, frames: &[Frame], class: Class, octave: u32) -> (u32, u32) {
        let size = match octave {
            0 => "0 B".to_string(),
            log => format!("{} and more", units::bytes(1 << (log - 1))),
        };
        let ranges = frames.iter().rev().filter_map(|frame| match frame {
            Frame::Range(name) => Some(without_numbers(name)),
            Frame::Call(_) => None,
        });
        let path: Vec<String> = ranges
            .chain([class.name().replace('-', " "), size])
            .collect();
        let mut node = 0;
        let mut frame = 0;
        for name in path {
            frame = self.instead(&name);
            node = self.nodes.number((node, frame)) + 1;
        }
        (node, frame + 1)
    }

    fn instead(&mut self, name: &str) -> u32 {
        let (name, place) = (self.text(name), self.text(""));
        self.frames.number(PageFrame {
            name,
            place,
            sort: Sort::Instead,
            is_above: true,
        })
    }

    fn frame(&mut self, symbol: &Symbol) -> u32 {
        let place = match (&symbol.file, symbol.line, &symbol.module) {
            (Some(file), Some(line), _) => format!("{file}:{line}"),
            (Some(file), None, _) => file.clone(),
            (None, _, module) => module.clone().unwrap_or_default(),
        };
        let (name, place) = (self.text(&symbol.function), self.text(&place));
        self.frames.number(PageFrame {
            name,
            place,
            sort: match symbol.kind {
                Kind::Python => Sort::Python,
                Kind::Native | Kind::Jit => Sort::Native,
                Kind::Unknown => Sort::Unknown,
            },
            is_above: !symbol.origin().is_below(),
        })
    }

    /// Puts all stacks into the payload. Returns the obstacles to better names.
    pub fn pack(self, pack: &mut Pack) -> Result<Vec<String>> {
        pack.head("texts", &self.texts.all)?;
        pack.head("has_stacks", &self.has_frames)?;
        let frames = &self.frames.all;
        pack.plain("frame_name", frames.iter().map(|f| u64::from(f.name)));
        pack.plain("frame_place", frames.iter().map(|f| u64::from(f.place)));
        pack.plain("frame_sort", frames.iter().map(|f| f.sort as u64));
        pack.plain("frame_above", frames.iter().map(|f| u64::from(f.is_above)));
        let nodes = &self.nodes.all;
        pack.delta("node_parent", nodes.iter().map(|(up, _)| u64::from(*up)));
        pack.delta("node_frame", nodes.iter().map(|(_, of)| u64::from(*of)));
        let stacks = &self.stacks.all;
        pack.delta(
            "stack_node",
            stacks.iter().map(|(node, ..)| u64::from(*node)),
        );
        pack.delta(
            "stack_blame",
            stacks.iter().map(|(_, who, _)| u64::from(*who)),
        );
        pack.delta(
            "stack_owner",
            stacks.iter().map(|(.., owner)| u64::from(*owner)),
        );
        Ok(self.names.problems())
    }
}
