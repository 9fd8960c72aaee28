//! Memory of a thread's last stack: the next stack mostly has its outer frames in common with it.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of frames that are remembered, the outermost of a stack.
const FRAMES: usize = 256;

/// Last stack of a thread: its frames from the outermost on, and their nodes. For a thread-local:
/// it needs no initialisation and no destructor.
#[derive(Debug)]
pub struct Memo {
    /// Number of the part that has the nodes, see [`instance`]; 0 for none.
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
    /// Returns a memo without a stack.
    pub const fn new() -> Memo {
        Memo {
            instance: Cell::new(0),
            root: Cell::new(0),
            length: Cell::new(0),
            frames: [const { Cell::new(0) }; FRAMES],
            nodes: [const { Cell::new(0) }; FRAMES],
        }
    }

    /// Consumes the frames that are remembered, and forgets the remembered ones beyond them.
    /// Returns the node of the last frame consumed.
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

    /// Adds the next frame; does nothing if there is no room.
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

/// Returns a new number for a part, unique among parts made by this process or inherited by fork. A
/// memo recognises its part by this number, because an address may be reused.
pub fn instance() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}
