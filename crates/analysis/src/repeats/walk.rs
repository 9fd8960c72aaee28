//! The walk of each thread over its call sites, and the loops in it.
//!
//! In each activation of a function, its calls are kept in the order of their first visit. A call
//! that is visited again begins the next pass of a loop at that place. Later calls are dropped from
//! the order. A loop is identified by its first call (its head) and the last call before the walk
//! returned (its tail). Several loops may share a head: an inner loop and the one around it, or
//! bodies that end in different branches.

use std::sync::Arc;

use gpushim_recording::Call;
use rustc_hash::FxHashMap;

use crate::repeats::contexts::{Chain, Contexts, ROOT};
use crate::repeats::passes::{Moment, Passes};

/// Calls of a path, the outermost, that are walked over,
const DEEPEST: usize = 256;
/// and of all paths together.
const CALLS: usize = 1 << 22;
/// Calls of one activation that are kept in order.
const ORDER: usize = 1 << 12;
/// Tails of a head that are kept apart.
const TAILS: usize = 8;
/// Fewer passes are no loop.
const LEAST: u64 = 3;

/// Loop, as the walk found it.
#[derive(Clone, Debug, PartialEq)]
pub struct Loop {
    /// Number of a path through it.
    pub path: u32,
    /// Number of calls on that path to the function that loops, itself included. It is 0 if threads
    /// themselves come again.
    pub depth: usize,
    /// Number of calls around it that may loop instead, because each made its first call again.
    pub above: usize,
    /// True if another thread loops than the one that drives the run.
    pub is_other: bool,
    /// Beginnings of passes: each, or each n-th of very many.
    pub starts: Vec<Moment>,
    /// The end of the last pass, if it is known.
    pub end: Option<Moment>,
    /// Number of passes that each of `starts` stands for.
    pub stride: u64,
    /// Number of passes in all.
    pub count: u64,
    /// Number of times that the loop was entered.
    pub entries: u64,
    /// Events from the beginnings of passes to their ends.
    pub covered: u64,
}

/// Properties of a walked path.
#[derive(Clone, Copy, Debug, Default)]
pub struct PathKind {
    /// True if it has lines of a program. Where some paths have, the others belong to the open
    /// pass.
    pub has_lines: bool,
    /// True for another thread than the one that drives the run.
    pub is_other: bool,
}

/// Call that was visited in an activation.
#[derive(Clone, Copy, Debug)]
struct Visit {
    context: u32,
    first: Moment,
    /// True once the walk returned to it.
    is_head: bool,
}

/// Calls that an activation of a function visited.
type Order = Vec<Visit>;

/// Loops that begin with the same call.
#[derive(Debug)]
struct Head {
    context: u32,
    /// Number of calls around the looping one that had made no other call before.
    above: usize,
    /// All returns to the head.
    all: Passes,
    /// Only returns after a tail was visited.
    tails: Vec<(u32, Passes)>,
}

impl Head {
    /// Forgets tails with the same passes as another one, if there are too many tails.
    fn make_room(&mut self) {
        if self.tails.len() >= TAILS {
            let mut seen = vec![self.all.count];
            self.tails.retain(|(_, passes)| {
                let is_new = !seen.contains(&passes.count);
                seen.push(passes.count);
                is_new
            });
        }
    }
}

/// Place of a thread in its walk.
#[derive(Debug, Default)]
struct Thread {
    path: Option<u32>,
    /// Activations of the path's calls, the root's first, which stays empty.
    open: Vec<Order>,
}

/// Reader of the loops of a run, from the paths of its events.
#[derive(Debug)]
pub struct Walk {
    contexts: Contexts,
    paths: Vec<(Arc<Chain>, bool)>,
    has_lines: bool,
    threads: FxHashMap<u32, Thread>,
    /// Calls of the process: each new thread is one of them.
    root: Order,
    heads: Vec<Head>,
    spare: Vec<Order>,
    /// Number of calls for which there is room.
    room: usize,
}

impl Default for Walk {
    fn default() -> Walk {
        Walk::new()
    }
}

impl Walk {
    /// Returns a walk at the beginning of a run.
    pub fn new() -> Walk {
        Walk {
            contexts: Contexts::new(),
            paths: Vec::new(),
            has_lines: false,
            threads: FxHashMap::default(),
            root: Order::new(),
            heads: Vec::new(),
            spare: Vec::new(),
            room: CALLS,
        }
    }

    /// Numbers a path, which its user knows as `path`: its calls, outermost first. `leaf`
    /// distinguishes the events below the last one.
    pub fn path(&mut self, path: u32, calls: &[Call], leaf: u64, kind: PathKind) -> u32 {
        // Deeper calls belong to the call at that depth.
        let calls = calls.get(..DEEPEST).unwrap_or(calls);
        let calls = calls.get(..self.room).unwrap_or(calls);
        self.room -= calls.len();
        let chain = self.contexts.chain(path, calls, leaf, kind.is_other.into());
        self.paths.push((Arc::new(chain), kind.has_lines));
        (self.paths.len() - 1) as u32
    }

    /// Notes an event of a thread, with the number of its path.
    pub fn step(&mut self, thread: u32, path: u32, at: Moment) {
        let Some((chain, has_lines)) = self.paths.get(path as usize) else {
            return;
        };
        if *has_lines != self.has_lines {
            if self.has_lines {
                return;
            }
            // The paths seen so far are below the program's own lines.
            self.has_lines = true;
            self.threads.clear();
            self.root.clear();
            self.heads.clear();
        }
        let chain = Arc::clone(chain);
        if chain.len() < 2 {
            return;
        }
        let mut state = self.threads.remove(&thread).unwrap_or_default();
        let before = state.path.and_then(|path| self.paths.get(path as usize));
        let known = match before {
            Some((before, _)) => {
                let same = before.iter().zip(chain.iter()).take_while(|(a, b)| a == b);
                same.count().min(chain.len() - 1)
            }
            None => 1,
        };
        let above = state.open.iter().take(known).rev().skip(1);
        let above = above.take_while(|order| order.len() == 1).count();
        // The activation before it makes the call of number `known`.
        let calls = chain.get(known).copied().unwrap_or(ROOT);
        while state.open.len() > known {
            if let Some(order) = state.open.pop() {
                self.close(order, at);
            }
        }
        if known == 1 {
            let mut root = std::mem::take(&mut self.root);
            self.visit(&mut root, calls, (thread, 0), at);
            self.root = root;
            state.open.resize_with(1, Order::new);
        } else if let Some(mut order) = state.open.pop() {
            self.visit(&mut order, calls, (thread, above + 1), at);
            state.open.push(order);
        }
        for next in chain.iter().skip(known + 1) {
            let mut order = self.spare.pop().unwrap_or_default();
            self.visit(&mut order, *next, (thread, 0), at);
            state.open.push(order);
        }
        state.path = Some(path);
        self.threads.insert(thread, state);
    }

    /// Returns the loops, the outermost first.
    pub fn finish(mut self, end: Moment) -> Vec<Loop> {
        let threads = std::mem::take(&mut self.threads);
        for order in threads.into_values().flat_map(|thread| thread.open) {
            self.close(order, end);
        }
        let mut loops = Vec::new();
        for head in &self.heads {
            let context = self.contexts.get(head.context);
            let of = |passes: &Passes| Loop {
                path: context.path,
                depth: (context.depth as usize).saturating_sub(1),
                above: head.above,
                is_other: context.is_other,
                starts: passes.begun.clone(),
                end: None,
                stride: passes.stride.max(1),
                count: passes.count,
                entries: passes.entries,
                covered: passes.covered(end.ticket),
            };
            let other = |passes: &&Passes| passes.count != head.all.count;
            let tails = head.tails.iter().map(|(_, passes)| passes).filter(other);
            let all = [&head.all].into_iter().chain(tails);
            loops.extend(all.filter(|passes| passes.count >= LEAST).map(of));
        }
        loops.sort_by_key(|one| (one.depth, one.count, one.starts.first().copied()));
        loops
    }

    /// Notes that an activation makes a call.
    fn visit(&mut self, order: &mut Order, call: u32, (thread, above): (u32, usize), at: Moment) {
        let Some(context) = self.contexts.get_mut(call) else {
            return;
        };
        let place = context.place as usize;
        let is_there = order.get(place).is_some_and(|one| one.context == call);
        context.is_shared |= context
            .thread
            .replace(thread)
            .is_some_and(|one| one != thread);
        let place = match is_there {
            true => Some(place),
            false if context.is_shared => order.iter().position(|one| one.context == call),
            false => None,
        };
        let Some(place) = place else {
            if order.len() < ORDER {
                context.place = order.len() as u32;
                order.push(Visit {
                    context: call,
                    first: at,
                    is_head: false,
                });
            }
            return;
        };
        self.begin(order, place, if place == 0 { above } else { 0 }, at);
        for left in order.drain(place + 1..) {
            self.leave(left, at);
        }
    }

    /// Begins a pass, as the walk returned to a call at this place.
    fn begin(&mut self, order: &mut Order, place: usize, above: usize, at: Moment) {
        let after = order.get(place..).unwrap_or_default();
        let (Some(head), Some(tail)) = (after.first().copied(), after.last()) else {
            return;
        };
        let number = self.contexts.get(head.context).head;
        let number = match number.checked_sub(1) {
            Some(known) => known as usize,
            None => {
                self.heads.push(Head {
                    context: head.context,
                    above,
                    all: Passes::default(),
                    tails: Vec::new(),
                });
                if let Some(context) = self.contexts.get_mut(head.context) {
                    context.head = self.heads.len() as u32;
                }
                self.heads.len() - 1
            }
        };
        let Some(loops) = self.heads.get_mut(number) else {
            return;
        };
        loops.above = loops.above.min(above);
        if !loops.all.is_open() {
            loops.all.enter(head.first);
        }
        loops.all.begin(at);
        let is_known = loops.tails.iter().any(|(known, _)| *known == tail.context);
        if !is_known {
            loops.make_room();
            if loops.tails.len() < TAILS {
                loops.tails.push((tail.context, Passes::default()));
            }
        }
        for (tail, passes) in &mut loops.tails {
            if after.iter().any(|one| one.context == *tail) {
                if !passes.is_open() {
                    passes.enter(head.first);
                }
                passes.begin(at);
            }
        }
        if let Some(head) = order.get_mut(place) {
            head.is_head = true;
        }
    }

    /// Ends an activation and its loops.
    fn close(&mut self, mut order: Order, at: Moment) {
        for left in order.drain(..) {
            self.leave(left, at);
        }
        self.spare.push(order);
    }

    /// Ends the loops that begin with a call.
    fn leave(&mut self, left: Visit, at: Moment) {
        if !left.is_head {
            return;
        }
        let number = self.contexts.get(left.context).head;
        let number = number.checked_sub(1).map(|number| number as usize);
        if let Some(head) = number.and_then(|number| self.heads.get_mut(number)) {
            head.all.leave(at.ticket);
            for (_, passes) in &mut head.tails {
                passes.leave(at.ticket);
            }
        }
    }
}
