//! Work of a backward pass on threads of its own, as work of the line that started it.
//!
//! PyTorch's autograd allocates gradients on threads without frames of the program. Meanwhile, the
//! caller of `backward` waits; its latest allocation was inside this call. A block without lines
//! therefore gets the frames of the call around its own.

use std::collections::hash_map::Entry;
use std::hash::{Hash, Hasher};
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rustc_hash::{FxHashMap, FxHasher};

use super::{Decorator, Frame, Names, Owners, Recording, Way};
use gpushim_trace::{Event, Kind, Record, flags};

/// The first id of a joined stack.
const JOINED: u32 = 1 << 31;
/// Highest number of joined stacks of a recording; further blocks keep their own stacks.
const MOST: usize = 1 << 20;
/// Threads whose backward passes are remembered.
const THREADS: usize = 64;

/// The part that a stack plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// Stack inside a backward pass, which may use other threads.
    Starts,
    /// Stack with lines of a program.
    Own,
    /// Stack with native frames alone, or none.
    Started,
}

/// Returns true if a function of Python runs a backward pass of autograd.
fn is_backward(function: &str, file: &str) -> bool {
    let name = function.rsplit('.').next();
    matches!(name, Some("backward" | "grad")) && file.ends_with("torch/autograd/__init__.py")
}

/// A stack without lines, and the one that started its work.
type Pair = (u32, u32);

/// The joined stacks, numbered in the order of their first events.
#[derive(Debug, Default)]
struct Joined {
    roles: FxHashMap<u32, Role>,
    /// True for each function that runs a backward pass, by number.
    functions: FxHashMap<u64, bool>,
    numbers: FxHashMap<Pair, u32>,
    pairs: Vec<Pair>,
}

/// A recording whose blocks of backward passes belong to the callers of the passes.
pub(super) struct Started {
    inner: Box<dyn Recording>,
    joined: Mutex<Joined>,
    owners: OnceLock<Arc<Owners>>,
}

impl Started {
    pub(super) fn new(inner: Box<dyn Recording>) -> Started {
        Started {
            inner,
            joined: Mutex::default(),
            owners: OnceLock::new(),
        }
    }

    fn joined(&self) -> MutexGuard<'_, Joined> {
        self.joined.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the two stacks that an id joins.
    fn pair(&self, stack: u32) -> Option<Pair> {
        let number = stack.checked_sub(JOINED)?;
        self.joined().pairs.get(number as usize).copied()
    }

    fn role(&self, stack: u32) -> Role {
        let known = |joined: &Joined| joined.roles.get(&stack).copied();
        if let Some(known) = known(&self.joined()) {
            return known;
        }
        let way = self.inner.way(stack);
        let role = match self.backward(&way) {
            _ if !way.has_lines => Role::Started,
            Some(_) => Role::Starts,
            None => Role::Own,
        };
        self.joined().roles.insert(stack, role);
        role
    }

    /// Returns the number of calls down to the innermost one that runs a backward pass.
    fn backward(&self, way: &Way) -> Option<usize> {
        let mut known = std::mem::take(&mut self.joined().functions);
        let mut runs = |function: u64| {
            *known.entry(function).or_insert_with(|| {
                let function = self.inner.function(function);
                function.is_some_and(|[name, file]| is_backward(&name, &file))
            })
        };
        let found = way.calls.iter().rposition(|call| runs(call.function));
        self.joined().functions = known;
        found.map(|at| at + 1)
    }

    fn number(&self, pair: Pair) -> u32 {
        let joined = &mut *self.joined();
        let next = joined.pairs.len();
        match joined.numbers.entry(pair) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(_) if next >= MOST => pair.0,
            Entry::Vacant(new) => {
                joined.pairs.push(pair);
                *new.insert(JOINED + next as u32)
            }
        }
    }
}

/// One pass over the events.
struct Pass<'a> {
    of: &'a Started,
    /// True if events have threads. Snapshots name none, and give no stack to work without lines.
    has_threads: bool,
    /// The latest stacks of threads inside a backward pass, the newest last.
    open: Vec<(u32, u32)>,
    roles: FxHashMap<u32, Role>,
    numbers: FxHashMap<Pair, u32>,
}

impl Pass<'_> {
    /// Gives an event the stack that it belongs to.
    fn join(&mut self, mut record: Record) -> Record {
        let event: &mut Event = &mut record.event;
        let is_made = matches!(
            event.kind,
            Kind::Alloc | Kind::OutOfMemory | Kind::TensorAlloc | Kind::TensorOutOfMemory
        );
        if !is_made || event.flags & flags::EARLIER != 0 {
            return record;
        }
        let role = match event.stack {
            0 if self.has_threads => return record,
            0 => Role::Started,
            stack => *self
                .roles
                .entry(stack)
                .or_insert_with(|| self.of.role(stack)),
        };
        if role != Role::Started {
            self.open.retain(|(thread, _)| *thread != event.thread);
            if role == Role::Starts {
                if self.open.len() >= THREADS {
                    self.open.remove(0);
                }
                self.open.push((event.thread, event.stack));
            }
            return record;
        }
        let waits = |(thread, _): &&(u32, u32)| !self.has_threads || *thread != event.thread;
        if let Some((_, starter)) = self.open.iter().rev().find(waits) {
            let pair = (event.stack, *starter);
            let number = self.numbers.entry(pair);
            event.stack = *number.or_insert_with(|| self.of.number(pair));
        }
        record
    }
}

impl Decorator for Started {
    fn inner(&self) -> &dyn Recording {
        &*self.inner
    }

    fn events(&self) -> Box<dyn Iterator<Item = Record> + Send + '_> {
        let mut pass = Pass {
            of: self,
            has_threads: self.inner.caching().is_none(),
            open: Vec::new(),
            roles: FxHashMap::default(),
            numbers: FxHashMap::default(),
        };
        Box::new(self.inner.events().map(move |record| pass.join(record)))
    }

    fn open_ranges(&self, stack: u32) -> Vec<String> {
        let (_, starter) = self.pair(stack).unwrap_or((stack, stack));
        self.inner.open_ranges(starter)
    }

    fn frames(&self, stack: u32) -> u64 {
        let Some((own, starter)) = self.pair(stack) else {
            return self.inner.frames(stack);
        };
        let mut hasher = FxHasher::default();
        (self.inner.frames(own), self.inner.frames(starter)).hash(&mut hasher);
        hasher.finish() | 1
    }

    fn way(&self, stack: u32) -> Way {
        let Some((own, starter)) = self.pair(stack) else {
            return self.inner.way(stack);
        };
        let mut way = self.inner.way(starter);
        way.calls
            .truncate(self.backward(&way).unwrap_or(usize::MAX));
        let mut below = FxHasher::default();
        let own = self.inner.way(own);
        (own.calls, own.below).hash(&mut below);
        Way {
            below: below.finish(),
            has_lines: false,
            ..way
        }
    }

    fn owners(&self) -> Arc<Owners> {
        let read = || Arc::new(Owners::of(self));
        Arc::clone(self.owners.get_or_init(read))
    }

    fn names(&self) -> Box<dyn Names + '_> {
        Box::new(StartedNames {
            of: self,
            inner: self.inner.names(),
            known: FxHashMap::default(),
        })
    }
}

/// Names of joined stacks: the frames of the work, then the frames of the call that started it.
struct StartedNames<'a> {
    of: &'a Started,
    inner: Box<dyn Names + 'a>,
    known: FxHashMap<u32, Rc<[Frame]>>,
}

impl Names for StartedNames<'_> {
    fn stack(&mut self, id: u32) -> Rc<[Frame]> {
        let Some((own, starter)) = self.of.pair(id) else {
            return self.inner.stack(id);
        };
        if let Some(known) = self.known.get(&id) {
            return Rc::clone(known);
        }
        let is_started = |frame: &Frame| match frame {
            Frame::Call(symbols) => symbols.iter().any(|symbol| {
                is_backward(&symbol.function, symbol.file.as_deref().unwrap_or_default())
            }),
            Frame::Range(_) => false,
        };
        let around = self.inner.stack(starter);
        let begin = around.iter().position(is_started).unwrap_or(0);
        let own = self.inner.stack(own);
        let calls = own.iter().filter(|frame| matches!(frame, Frame::Call(_)));
        let around = around.iter().skip(begin);
        let joined: Rc<[Frame]> = calls.chain(around).cloned().collect();
        self.known.insert(id, Rc::clone(&joined));
        joined
    }

    fn problems(&self) -> Vec<String> {
        self.inner.problems()
    }
}

#[cfg(test)]
mod tests;
