//! The tree of calling contexts: a call at a place, within the calls that led to it.

use gpushim_recording::Call;
use rustc_hash::FxHashMap;

/// Largest number of contexts of a run; later paths end when the tree is full.
const MOST: usize = 1 << 20;

/// Path of contexts, from the outermost call to the allocation.
pub(crate) type Chain = Box<[u32]>;

/// Context of the whole run.
pub(crate) const ROOT: u32 = 0;

/// A call, within the calls that led to it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Context {
    /// A path that leads through it, by the number that its user gave.
    pub(crate) path: u32,
    /// Its distance from the root.
    pub(crate) depth: u32,
    /// True for another thread than the one that drives the run.
    pub(crate) is_other: bool,
    /// Its place in the order of the activation that visited it last.
    pub(crate) place: u32,
    /// The thread of that activation, and whether others visit it, too.
    pub(crate) thread: Option<u32>,
    pub(crate) is_shared: bool,
    /// The number of the loops that begin with it, plus one.
    pub(crate) head: u32,
}

/// Tree of all calling contexts of a run.
#[derive(Debug)]
pub(crate) struct Contexts {
    all: Vec<Context>,
    children: FxHashMap<(u32, u64, u64), u32>,
}

impl Contexts {
    pub(crate) fn new() -> Contexts {
        Contexts {
            all: vec![Context::default()],
            children: FxHashMap::default(),
        }
    }

    /// Returns the path of a stack, outermost call first. `leaf` distinguishes events below its
    /// last call; `place` is the place of the root's call.
    pub(crate) fn chain(&mut self, path: u32, calls: &[Call], leaf: u64, place: u64) -> Chain {
        let functions = calls.iter().map(|call| call.function);
        let below = functions.chain([leaf]);
        let sites = [place]
            .into_iter()
            .chain(calls.iter().map(|call| call.site));
        let mut chain = vec![ROOT];
        let mut parent = ROOT;
        for (site, function) in sites.zip(below) {
            let next = u32::try_from(self.all.len()).unwrap_or(u32::MAX);
            let is_room = self.all.len() < MOST;
            let key = (parent, site, function);
            let child = match self.children.get(&key) {
                Some(known) => *known,
                None if is_room => {
                    self.children.insert(key, next);
                    self.all.push(Context {
                        path,
                        depth: chain.len() as u32,
                        is_other: place != 0,
                        ..Context::default()
                    });
                    next
                }
                None => break,
            };
            chain.push(child);
            parent = child;
        }
        chain.into()
    }

    pub(crate) fn get(&self, context: u32) -> Context {
        self.all.get(context as usize).copied().unwrap_or_default()
    }

    pub(crate) fn get_mut(&mut self, context: u32) -> Option<&mut Context> {
        self.all.get_mut(context as usize)
    }
}
