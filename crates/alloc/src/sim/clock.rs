//! What comes after what: streams, their work, and events.

use crate::handles::Context;
use crate::handles::Stream;
use std::collections::{HashMap, VecDeque};

/// Up to which piece of its work something comes after each stream.
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

    /// Whether it comes after a piece of work.
    pub fn covers(&self, stream: usize, number: u64) -> bool {
        number <= self.at(stream)
    }

    /// Comes after all that another does, too.
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
    /// What the next piece of work comes after.
    clock: Clock,
    submitted: u64,
    /// What each unfinished piece of work waits for.
    unfinished: VecDeque<Clock>,
}

struct Recorded {
    clock: Clock,
    context: Context,
    born: u64,
}

struct Known {
    device: i32,
    /// Which of the contexts that had this handle.
    born: u64,
    /// What all its work comes after, also that of later streams.
    base: Clock,
}

/// All streams and their work.
#[derive(Default)]
pub struct Time {
    queues: Vec<Queue>,
    open: HashMap<Stream, usize>,
    contexts: HashMap<Context, Known>,
    /// Contexts whose work may use the memory of others: owner and accessor.
    peers: Vec<(Context, Context)>,
    /// What has finished.
    done: Clock,
    /// What the host knows to have finished.
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

    /// A context that may use another's memory from now on does not know what that memory was given away after: its work comes
    /// after all work there.
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

    /// The work of one context may use the memory of another.
    pub fn add_peer(&mut self, owner: Context, accessor: Context) {
        if !self.peers.contains(&(owner, accessor)) {
            self.peers.push((owner, accessor));
            self.catch_up(accessor, owner);
        }
    }

    /// Contexts, beside itself, whose work may use the memory of one.
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

    /// A stream ends; its work goes on.
    pub fn end_stream(&mut self, stream: Stream) {
        self.open.remove(&stream);
    }

    /// A context ends: its work is over, and the host knows.
    pub fn end_context(&mut self, context: Context) {
        let all = self.of_context(context);
        self.finish(&all);
        self.open.retain(|stream, _| stream.context != context);
        self.contexts.remove(&context);
        self.peers
            .retain(|(owner, accessor)| ![owner, accessor].contains(&&context));
    }

    /// Submits a piece of work. Returns its stream, its number and what it comes after.
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

    /// Everything that a stream was given to do so far; or its context and all that may use its memory.
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

    /// Everything that a context was given to do so far.
    pub fn of_context(&self, context: Context) -> Clock {
        let mut clock = Clock::default();
        let own = |queue: &&Queue| queue.stream.context == context;
        for queue in self.queues.iter().filter(own) {
            clock.join(&queue.clock);
        }
        clock
    }

    /// Later work of a stream comes after this; or of its context and all that may use its memory.
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

    /// Later work of contexts comes after this.
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

    /// Whether the host knows that a piece of work has finished.
    pub fn is_known(&self, stream: usize, number: u64) -> bool {
        self.known.covers(stream, number)
    }

    /// Whether all this has finished; the host knows if so.
    pub fn has_finished(&mut self, clock: &Clock) -> bool {
        let finished = clock.is_within(&self.done);
        if finished {
            self.known.join(clock);
        }
        finished
    }

    /// The host waits for all this.
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

    /// Lets the n-th stream that can finish its first piece of work do so.
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

    /// Lets all work finish; the host does not look.
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

    /// What an event stands for; `Err`: why it is none.
    pub fn event(&self, event: u64) -> Result<Clock, &'static str> {
        let Some(recorded) = self.events.get(&event) else {
            return Err("an event that was retired is used");
        };
        match self.contexts.get(&recorded.context) {
            Some(known) if known.born == recorded.born => Ok(recorded.clock.clone()),
            // Of a device.
            None if recorded.context == Context(0) => Ok(recorded.clock.clone()),
            _ => Err("an event of a context that is gone is used"),
        }
    }

    /// Returns whether there was such an event.
    pub fn retire(&mut self, event: u64) -> bool {
        self.events.remove(&event).is_some()
    }

    pub fn events(&self) -> usize {
        self.events.len()
    }
}
