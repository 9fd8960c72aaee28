//! The stacks part: call stacks and open ranges as a tree that only grows.
//!
//! A node is a frame or a range and has a parent; the last parent is the root, 0. The id of a node
//! stands for the whole stack. An index finds the node with the same parent and content again, so
//! each stack is kept once. A node is complete before any other thread or a reader knows its id.

use std::sync::atomic::Ordering;

use super::index::{Index, mix};
use super::ring::Word;
use super::space::Room;

mod memo;
#[cfg(all(test, not(miri)))]
mod model;
#[cfg(test)]
mod tests;

pub use memo::Memo;

/// Layout of the part: nodes of two words, the index of a node being its id. The words of the first
/// [`FIRST`](layout::FIRST) nodes have other uses.
pub mod layout {
    /// Word: number of nodes handed out; more than fit once the part is full.
    pub const HANDED_OUT: usize = 0;
    /// Word: number of stacks that were cut off, or ranges left out, because their nodes did not
    /// fit.
    pub const CUT: usize = 1;
    /// First node: a cache line further, so that adding a node does not slow a look-up.
    pub const FIRST: u32 = 4;
    /// Words of a node in this version.
    pub const WORDS: usize = 2;
    /// Bytes of a node in this version.
    pub const BYTES: usize = 8 * WORDS;
    /// Bit in the first word of a node: it is complete. Below are the kind (bits 32 to 39) and the
    /// id of the parent, which is less than its own (bits 0 to 31). The second word is the value.
    pub const COMMITTED: u64 = 1 << 63;
    /// Bit in the first word of a node: the writer's index refers to it, so it is not an unused
    /// copy. A reader has no use for it.
    pub const FOUND: u64 = 1 << 62;
    /// Kind of a frame. Its value: the return address, and from bit 48 on the generation of its
    /// module.
    pub const FRAME: u8 = 1;
    /// Kind of an open range. Its value: string id of the name, string id of the domain × 2³².
    pub const RANGE: u8 = 2;
    /// Kind of a frame of an interpreter. Its value: the id of the site.
    pub const SITE: u8 = 3;
}

/// Bit of a frame that is a site: the rest of the frame is the site's id. No return address has it.
pub const SITE: u64 = 1 << 63;

/// Element of a stack: a frame or a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StackNode {
    /// A call: its return address, and above bit 48 the generation of the code there. The
    /// generation is 0 unless the code lies where other code of the trace had been.
    Frame(u64),
    /// A range that was open on the thread.
    Range {
        /// String id of the range's name.
        name: u32,
        /// String id of its domain, 0 for none.
        domain: u32,
    },
    /// A call in an interpreted language: the id of its site.
    Site(u32),
}

impl StackNode {
    /// Returns kind and value, as in the file.
    #[inline]
    fn encode(self) -> (u8, u64) {
        match self {
            StackNode::Frame(address) => (layout::FRAME, address),
            StackNode::Range { name, domain } => {
                (layout::RANGE, u64::from(name) | u64::from(domain) << 32)
            }
            StackNode::Site(site) => (layout::SITE, site.into()),
        }
    }

    /// Returns the node of a frame as passed to a writer.
    #[inline]
    fn of_frame(frame: u64) -> StackNode {
        match frame & SITE {
            0 => StackNode::Frame(frame),
            _ => StackNode::Site(frame as u32),
        }
    }

    /// Returns the node of a kind and a value; `None` for a kind unknown to this version.
    fn decode(kind: u8, value: u64) -> Option<StackNode> {
        match kind {
            layout::FRAME => Some(StackNode::Frame(value)),
            layout::RANGE => Some(StackNode::Range {
                name: value as u32,
                domain: (value >> 32) as u32,
            }),
            layout::SITE => u32::try_from(value).ok().map(StackNode::Site),
            _ => None,
        }
    }
}

/// Result of entering a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pushed {
    /// Id of the stack, or of its outer part that did fit.
    pub id: u32,
    /// True if the whole stack did fit.
    pub is_whole: bool,
}

/// The stacks part and an index of it.
#[derive(Debug)]
pub struct Stacks<'a, W> {
    words: &'a [W],
    index: Index<W>,
    /// Number of this part, by which memos recognise it.
    instance: u64,
    room: Room,
}

impl<'a, W: Word> Stacks<'a, W> {
    /// Returns stacks over the words of the part, which are zero.
    pub fn new(words: &'a [W], index: Index<W>) -> Stacks<'a, W> {
        Stacks {
            words,
            index,
            instance: memo::instance(),
            room: Room::default(),
        }
    }

    /// Places the stacks in a file that grows.
    pub fn within(self, room: Room) -> Stacks<'a, W> {
        Stacks { room, ..self }
    }

    /// Returns the id of a node below a parent. The parent is 0 or an id that this process got from
    /// this function. The id is the same each time, even if two threads add a node at once. One of
    /// them then writes a copy without an index entry. A node that does not fit is counted, and the
    /// parent is returned.
    pub fn child(&self, parent: u32, node: StackNode) -> u32 {
        self.find(parent, node).unwrap_or_else(|| self.cut(parent))
    }

    /// Returns the id of a stack: frames, from the innermost on, above a node. Frames with [`SITE`]
    /// are sites. If not all frames fit, the stack is counted and has only its outer frames.
    ///
    /// Frames in common with the memo's last stack, from the outermost on, are taken from the memo.
    #[inline]
    pub fn push(&self, memo: &Memo, root: u32, frames: &[u64]) -> Pushed {
        let mut rest = frames.iter().rev().copied();
        let mut at = memo.follow(self.instance, root, &mut rest);
        for frame in rest {
            let Some(node) = self.find(at, StackNode::of_frame(frame)) else {
                return Pushed {
                    id: self.cut(at),
                    is_whole: false,
                };
            };
            memo.remember(frame, node);
            at = node;
        }
        Pushed {
            id: at,
            is_whole: true,
        }
    }

    /// Returns the return addresses of successive complete nodes from this id on, and the id after
    /// them.
    pub fn frames_since(&self, from: u32) -> (Vec<u64>, u32) {
        let mut frames = Vec::new();
        let mut id = from.max(layout::FIRST);
        while let Some(words) = self.words_of(id) {
            let (head, value) = load(words);
            if head & layout::COMMITTED == 0 {
                break;
            }
            if (head >> 32) as u8 == layout::FRAME {
                frames.push(value);
            }
            id += 1;
        }
        (frames, id)
    }

    #[inline]
    fn find(&self, parent: u32, node: StackNode) -> Option<u32> {
        let (kind, value) = node.encode();
        let head = layout::COMMITTED | u64::from(kind) << 32 | u64::from(parent);
        // A new stack gets its nodes in a row: the wanted node is mostly next to its parent, in the
        // same cache line.
        let next = parent.wrapping_add(1);
        if self
            .words_of(next)
            .is_some_and(|words| load(words) == (head | layout::FOUND, value))
        {
            return Some(next);
        }
        self.look_up(head, value)
    }

    fn look_up(&self, head: u64, value: u64) -> Option<u32> {
        let same = |id| {
            let words = self.words_of(id).map(load);
            words.is_some_and(|(first, second)| (first & !layout::FOUND, second) == (head, value))
        };
        let mut own = None;
        let add = || {
            own = self.append(head, value);
            own
        };
        let id = self.index.find_or_add(mix(value, head), same, add)?;
        if own == Some(id)
            && let Some([first, _]) = self.words_of(id)
        {
            // Release: as when it was completed, for readers that find it by this word.
            first.store(head | layout::FOUND, Ordering::Release);
        }
        Some(id)
    }

    #[cold]
    fn append(&self, head: u64, value: u64) -> Option<u32> {
        let handed_out = self.words.get(layout::HANDED_OUT)?;
        let place = |count: u64| {
            let id = u32::try_from(count).ok()?.checked_add(layout::FIRST)?;
            let node = self.words_of(id)?;
            let has_room = self.room.has(id as usize * layout::BYTES, layout::BYTES);
            has_room.then_some((id, node))
        };
        // Checked first, so that the count does not grow for ever.
        place(handed_out.load(Ordering::Relaxed))?;
        // Only the place must belong to no other thread. The parent's place was taken before, so
        // its id is always smaller.
        let (id, [first, second]) = place(handed_out.fetch_add(1, Ordering::Relaxed))?;
        second.store(value, Ordering::Relaxed);
        // Release: a reader that sees the node complete sees its value.
        first.store(head, Ordering::Release);
        Some(id)
    }

    #[inline]
    fn words_of(&self, id: u32) -> Option<&'a [W; layout::WORDS]> {
        words_of(self.words, layout::WORDS, id)
    }

    /// Returns the number of this part, unique among parts made by this process or inherited by
    /// fork.
    pub fn instance(&self) -> u64 {
        self.instance
    }

    /// Counts an entry that did not fit below a node, and returns the node.
    #[cold]
    fn cut(&self, parent: u32) -> u32 {
        if let Some(cut) = self.words.get(layout::CUT) {
            cut.fetch_add(1, Ordering::Relaxed);
        }
        parent
    }
}

/// Returns the words of a node, where each node has `each` words.
#[inline]
fn words_of<W>(words: &[W], each: usize, id: u32) -> Option<&[W; layout::WORDS]> {
    let at = usize::try_from(id).ok()?.checked_mul(each)?;
    let node = words.get(at..at.checked_add(layout::WORDS)?)?;
    node.try_into().ok()
}

#[inline]
fn load<W: Word>([first, second]: &[W; layout::WORDS]) -> (u64, u64) {
    // Acquire: the value is that of the completed node.
    (
        first.load(Ordering::Acquire),
        second.load(Ordering::Relaxed),
    )
}

/// Iterator over one stack of a file: the innermost frame first, then the outer frames, then the
/// ranges that were open, the innermost first.
#[derive(Debug)]
pub struct Stack<'a, W> {
    words: &'a [W],
    /// Words of a node in the file.
    each: usize,
    next: u32,
    /// Number of nodes that may yet be read.
    left: usize,
}

/// Largest number of nodes of a stack that a reader accepts. Writers keep at most 256 frames and 64
/// ranges. In a damaged file a chain can lead through all nodes, for every event.
const NODES_MAX: usize = 4096;

impl<'a, W: Word> Stack<'a, W> {
    /// Returns the stack of an id, over the words of a part with `each` words per node. Never
    /// trusts their content. A stack ends at a missing node.
    pub fn of(words: &'a [W], each: usize, id: u32) -> Stack<'a, W> {
        Stack {
            words,
            each,
            next: id,
            left: NODES_MAX,
        }
    }
}

impl<W: Word> Iterator for Stack<'_, W> {
    type Item = StackNode;

    fn next(&mut self) -> Option<StackNode> {
        loop {
            self.left = self.left.checked_sub(1)?;
            let (parent, node) = node(self.words, self.each, self.next)?;
            self.next = parent;
            if node.is_some() {
                return node;
            }
        }
    }
}

/// Returns the parent and, if its kind is known, the content of a node. `None` for the root and for
/// an incomplete node.
pub fn node<W: Word>(words: &[W], each: usize, id: u32) -> Option<(u32, Option<StackNode>)> {
    let (head, value) = load(words_of(words, each, id)?);
    let (kind, parent) = ((head >> 32) as u8, head as u32);
    let sound = id >= layout::FIRST && head & layout::COMMITTED != 0 && parent < id;
    sound.then(|| (parent, StackNode::decode(kind, value)))
}

/// Returns the number of damaged nodes: their content cannot have been written so.
pub fn broken<W: Word>(words: &[W], each: usize) -> u64 {
    let handed_out = words
        .get(layout::HANDED_OUT)
        .map_or(0, |word| word.load(Ordering::Relaxed));
    let nodes = words.chunks_exact(each.max(1)).zip(0_u64..);
    let written = nodes
        .skip(layout::FIRST as usize)
        .take(usize::try_from(handed_out).unwrap_or(usize::MAX));
    let is_broken = |(words, id): &(&[W], u64)| {
        let head = words.first().map_or(0, |word| word.load(Ordering::Relaxed));
        head != 0 && (head & layout::COMMITTED == 0 || head & 0xffff_ffff >= *id)
    };
    written.filter(is_broken).count() as u64
}
