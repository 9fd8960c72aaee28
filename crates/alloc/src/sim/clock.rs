//! Order of work: streams, their work, and events.

use crate::handles::Context;
use crate::handles::Stream;
use std::collections::{HashMap, VecDeque};

/// Last piece of work of each stream that comes before a point in time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Clock(Vec<u64>);

impl Clock {
    fn at(&self, stream: usize) -> u64 {
        self.0.get(stream).copied().unwrap_or(0)
    }

    fn set(&mut self, stream: usize, number: u64) {
        if self.0.len() <= stream {
            self.0.resize(stream + 1, 0);
        }
        self.0[stream] = number;
    }

    /// True if it comes after a piece of work.
    pub fn covers(&self, stream: usize, number: u64) -> bool {
        number <= self.at(stream)
    }

    /// Moves it after all work that another comes after.
    pub fn join(&mut self, other: &Clock) {
        for (stream, number) in other.0.iter().enumerate() {
            if self.at(stream) < *number {
                self.set(stream, *number);
            }
        }
    }

    fn is_within(&self, other: &Clock) -> bool {
        let mut all = self.0.iter().enumerate();
        all.all(|(stream, number)| other.covers(stream, *number))
    }
}

/// One stream, also after its end.
struct Queue {
    stream: Stream,
    /// Work that comes before the next piece of work.
    clock: Clock,
    submitted: u64,
    /// Work that each incomplete piece of work waits for.
    unfinished: VecDeque<Clock>,
}

struct Recorded {
    clock: Clock,
    context: Context,
    born: u64,
}

struct Known {
    device: i32,
    /// Number that tells apart the contexts with one handle.
    born: u64,
    /// Work that comes before all later work of the context, also on later streams.
    base: Clock,
}

/// All streams and their work.
#[derive(Default)]
pub struct Time {
    queues: Vec<Queue>,
    open: HashMap<Stream, usize>,
    contexts: HashMap<Context, Known>,
    /// Owners and accessors: contexts, with others whose work may use their memory.
    peers: Vec<(Context, Context)>,
    /// All work that is complete.
    done: Clock,
    /// Work that the host knows to be complete.
    known: Clock,
    events: HashMap<u64, Recorded>,
    next: u64,
}

impl Time {
    pub fn add_context(&mut self, context: Context, device: i32) {
        self.next += 1;
        let known = Known {
            device,
            born: self.next,
            base: Clock::default(),
        };
        self.contexts.insert(context, known);
        let near = self.accessors(context);
        near.into_iter()
            .for_each(|other| self.catch_up(context, other));
    }

    /// Orders a context that may now use another's memory behind all work there. Its streams were
    /// not made to wait when that memory was reused before.
    fn catch_up(&mut self, accessor: Context, owner: Context) {
        let mut clock = self.of_context(owner);
        for other in self.accessors(owner) {
            clock.join(&self.of_context(other));
        }
        self.order_contexts(&[accessor], &clock);
    }

    pub fn device(&self, context: Context) -> Option<i32> {
        self.contexts.get(&context).map(|known| known.device)
    }

    /// Lets the work of one context use the memory of another.
    pub fn add_peer(&mut self, owner: Context, accessor: Context) {
        if !self.peers.contains(&(owner, accessor)) {
            self.peers.push((owner, accessor));
            self.catch_up(accessor, owner);
        }
    }

    /// Other contexts whose work may use the memory of a context.
    pub fn accessors(&self, owner: Context) -> Vec<Context> {
        let device = self.device(owner);
        let near = self
            .contexts
            .iter()
            .filter(|(_, known)| Some(known.device) == device);
        let far = self.peers.iter().filter(|(of, _)| *of == owner);
        let all = near
            .map(|(context, _)| *context)
            .chain(far.map(|(_, accessor)| *accessor));
        all.filter(|context| *context != owner).collect()
    }

    pub fn add_stream(&mut self, stream: Stream) {
        let context = self.contexts.get(&stream.context);
        let clock = context.map_or_else(Clock::default, |known| known.base.clone());
        self.open.insert(stream, self.queues.len());
        self.queues.push(Queue {
            stream,
            clock,
            submitted: 0,
            unfinished: VecDeque::new(),
        });
    }

    /// Ends a stream; its work continues.
    pub fn end_stream(&mut self, stream: Stream) {
        self.open.remove(&stream);
    }

    /// Ends a context: its work is complete, and the host knows.
    pub fn end_context(&mut self, context: Context) {
        let all = self.of_context(context);
        self.finish(&all);
        self.open.retain(|stream, _| stream.context != context);
        self.contexts.remove(&context);
        self.peers
            .retain(|(owner, accessor)| ![owner, accessor].contains(&&context));
    }

    /// Submits a piece of work. Returns its stream, its number and the work before it.
    pub fn submit(&mut self, stream: Stream) -> Option<(usize, u64, Clock)> {
        let index = *self.open.get(&stream)?;
        let queue = &mut self.queues[index];
        queue.clock.join(&self.known);
        let before = queue.clock.clone();
        queue.submitted += 1;
        queue.clock.set(index, queue.submitted);
        queue.unfinished.push_back(before.clone());
        Some((index, queue.submitted, before))
    }

    /// All work submitted to a stream so far; or to its context and all contexts that may use its
    /// memory.
    pub fn now(&self, stream: Stream) -> Option<Clock> {
        if stream.handle == Stream::ALL && stream.context == Context(0) {
            let mut clock = Clock::default();
            self.contexts
                .keys()
                .for_each(|context| clock.join(&self.of_context(*context)));
            return Some(clock);
        }
        if stream.handle == Stream::ALL {
            self.contexts.get(&stream.context)?;
            let mut clock = self.of_context(stream.context);
            for other in self.accessors(stream.context) {
                clock.join(&self.of_context(other));
            }
            return Some(clock);
        }
        let index = *self.open.get(&stream)?;
        Some(self.queues[index].clock.clone())
    }

    /// All work submitted to a context so far.
    pub fn of_context(&self, context: Context) -> Clock {
        let mut clock = Clock::default();
        let own = |queue: &&Queue| queue.stream.context == context;
        for queue in self.queues.iter().filter(own) {
            clock.join(&queue.clock);
        }
        clock
    }

    /// Orders the later work of a stream behind this; or of its context and all contexts that may
    /// use its memory.
    pub fn order(&mut self, stream: Stream, clock: &Clock) {
        if stream.handle == Stream::ALL {
            let mut all = self.accessors(stream.context);
            all.push(stream.context);
            for context in &all {
                if let Some(known) = self.contexts.get_mut(context) {
                    known.base.join(clock);
                }
            }
            let open = self
                .open
                .iter()
                .filter(|(stream, _)| all.contains(&stream.context));
            for (_, index) in open {
                self.queues[*index].clock.join(clock);
            }
        }
        if let Some(queue) = self.open.get(&stream).and_then(|i| self.queues.get_mut(*i)) {
            queue.clock.join(clock);
        }
    }

    /// Orders the later work of contexts behind this.
    pub fn order_contexts(&mut self, contexts: &[Context], clock: &Clock) {
        for context in contexts {
            if let Some(known) = self.contexts.get_mut(context) {
                known.base.join(clock);
            }
        }
        let open = self
            .open
            .iter()
            .filter(|(stream, _)| contexts.contains(&stream.context));
        for (_, index) in open {
            self.queues[*index].clock.join(clock);
        }
    }

    /// True if the host knows that a piece of work is complete.
    pub fn is_known(&self, stream: usize, number: u64) -> bool {
        self.known.covers(stream, number)
    }

    /// True if all this work is complete; then the host knows.
    pub fn has_finished(&mut self, clock: &Clock) -> bool {
        let finished = clock.is_within(&self.done);
        if finished {
            self.known.join(clock);
        }
        finished
    }

    /// Completes all this work, because the host waits for it.
    pub fn finish(&mut self, clock: &Clock) {
        self.done.join(clock);
        self.known.join(clock);
        for (index, queue) in self.queues.iter_mut().enumerate() {
            let left = queue.submitted - self.done.at(index);
            while queue.unfinished.len() as u64 > left {
                queue.unfinished.pop_front();
            }
        }
    }

    /// Completes a piece of work on the n-th stream whose first incomplete piece can complete.
    pub fn step(&mut self, n: usize) {
        let ready = |queue: &Queue| {
            queue
                .unfinished
                .front()
                .is_some_and(|c| c.is_within(&self.done))
        };
        let ready: Vec<usize> = (0..self.queues.len())
            .filter(|i| ready(&self.queues[*i]))
            .collect();
        if !ready.is_empty() {
            let index = ready[n % ready.len()];
            self.queues[index].unfinished.pop_front();
            self.done.set(index, self.done.at(index) + 1);
        }
    }

    /// Completes all work; the host does not know.
    pub fn finish_unseen(&mut self) {
        for (index, queue) in self.queues.iter_mut().enumerate() {
            queue.unfinished.clear();
            self.done.set(index, queue.submitted);
        }
    }

    pub fn record(&mut self, context: Context, clock: Clock) -> u64 {
        self.next += 1;
        let born = self.contexts.get(&context).map_or(0, |known| known.born);
        self.events.insert(
            self.next,
            Recorded {
                clock,
                context,
                born,
            },
        );
        self.next
    }

    /// Returns the work that an event stands for, or the reason why the event cannot be used.
    pub fn event(&self, event: u64) -> Result<Clock, &'static str> {
        let Some(recorded) = self.events.get(&event) else {
            return Err("an event that was retired is used");
        };
        match self.contexts.get(&recorded.context) {
            Some(known) if known.born == recorded.born => Ok(recorded.clock.clone()),
            // An event of a whole device.
            None if recorded.context == Context(0) => Ok(recorded.clock.clone()),
            _ => Err("an event of a context that is gone is used"),
        }
    }

    /// Retires an event. Returns false if there is no such event.
    pub fn retire(&mut self, event: u64) -> bool {
        self.events.remove(&event).is_some()
    }

    pub fn events(&self) -> usize {
        self.events.len()
    }
}
