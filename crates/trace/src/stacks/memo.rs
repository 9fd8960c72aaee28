//! What a thread remembers of its last stack: the next one mostly has its outer frames in common with it.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// Frames that are remembered, the outermost of a stack.
const FRAMES: usize = 256;

/// The last stack of a thread: its frames from the outermost on, and their nodes. For a thread-local: it
/// needs no initialisation and no destructor.
#[derive(Debug)]
pub struct Memo {
    /// In which part the nodes are, see [`instance`]; 0 in none.
    instance: Cell<u64>,
    root: Cell<u32>,
    length: Cell<usize>,
    frames: [Cell<u64>; FRAMES],
    nodes: [Cell<u32>; FRAMES],
}

impl Default for Memo {
    fn default() -> Memo {
        Memo::new()
    }
}

impl Memo {
    /// Remembers nothing.
    pub const fn new() -> Memo {
        Memo {
            instance: Cell::new(0),
            root: Cell::new(0),
            length: Cell::new(0),
            frames: [const { Cell::new(0) }; FRAMES],
            nodes: [const { Cell::new(0) }; FRAMES],
        }
    }

    /// Takes off the frames that are remembered, and forgets those beyond; returns the node of the last one
    /// taken.
    #[inline]
    pub fn follow(
        &self,
        instance: u64,
        root: u32,
        frames: &mut (impl Iterator<Item = u64> + Clone),
    ) -> u32 {
        let known = if (self.instance.get(), self.root.get()) == (instance, root) {
            self.length.get()
        } else {
            self.instance.set(instance);
            self.root.set(root);
            0
        };
        let pairs = self.frames.iter().zip(frames.clone()).take(known);
        let common = pairs
            .take_while(|(known, frame)| known.get() == *frame)
            .count();
        self.length.set(common);
        match common.checked_sub(1) {
            None => root,
            Some(last) => {
                frames.nth(last);
                self.nodes.get(last).map_or(root, Cell::get)
            }
        }
    }

    /// Adds the next frame; beyond what there is room for it does nothing.
    #[inline]
    pub fn remember(&self, frame: u64, node: u32) {
        let at = self.length.get();
        if let (Some(frames), Some(nodes)) = (self.frames.get(at), self.nodes.get(at)) {
            frames.set(frame);
            nodes.set(node);
            self.length.set(at + 1);
        }
    }
}

/// A number for each part that this process, or the one that it was forked from, has made. A memo is told
/// by it, not by an address, which may come again.
pub fn instance() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}
