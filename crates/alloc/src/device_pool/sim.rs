//! A device that does nothing but watch: which unfinished work uses which memory, and whether
//! memory changes hands, or goes back to the driver, under it.
//!
//! Work of one context finishes in any order that the orderings allow, as if each piece had a
//! stream of its own.

use super::device::Device;
use crate::handles::{Address, Context};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};

/// Error codes, as the driver's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// No memory left.
    OutOfMemory,
    /// Any other failure.
    Failed,
}

/// Everything a context was given to do up to a point.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    context: Context,
    upto: u64,
    /// Which of the contexts that had this handle.
    born: u64,
}

/// The calls that can be made to fail or to lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Call {
    /// [`Device::allocate`].
    Allocate,
    /// [`Device::release`].
    Release,
    /// [`Device::record`].
    Record,
    /// [`Device::order`].
    Order,
    /// [`Device::is_complete`].
    Query,
    /// [`Device::wait`].
    Wait,
    /// [`Device::synchronize`].
    Synchronize,
}

/// Memory in use: begin, bytes, and which handing out of it is meant.
pub type Use = (Address, u64, u64);

struct Work {
    context: Context,
    number: u64,
    /// Work of each context that comes before.
    after: HashMap<Context, u64>,
    uses: Vec<Use>,
}

struct ContextState {
    device: i32,
    born: u64,
    submitted: u64,
    /// Later work waits for each context's work up to here.
    after: HashMap<Context, u64>,
}

#[derive(Default)]
struct Inner {
    capacity: u64,
    no_events: bool,
    contexts: HashMap<Context, ContextState>,
    works: Vec<Work>,
    /// Driver allocations: bytes and context.
    allocations: BTreeMap<Address, (u64, Context)>,
    /// Handed out: bytes and number.
    grants: BTreeMap<Address, (u64, u64)>,
    granted: u64,
    /// The contexts of streams that capture, and the capture because of which the driver refuses allocations
    /// meanwhile, if it does.
    capturing: Vec<(Context, Option<u64>)>,
    findings: Vec<String>,
    calls: HashMap<Call, u64>,
    /// Every so many calls one fails.
    failing: HashMap<Call, u64>,
    /// Calls that claim to have done their work and have not.
    lying: Option<Call>,
    peaks: HashMap<i32, u64>,
    events: HashMap<Context, i64>,
    born: u64,
}

/// The simulated device.
#[derive(Default)]
pub struct Sim {
    inner: Mutex<Inner>,
}

fn overlap(a: Address, a_bytes: u64, b: Address, b_bytes: u64) -> bool {
    a < b + b_bytes && b < a + a_bytes
}

impl Sim {
    /// Devices with so many bytes of memory each.
    pub fn new(capacity: u64) -> Self {
        let sim = Sim::default();
        sim.inner.lock().capacity = capacity;
        sim
    }

    /// A driver without events on contexts.
    pub fn without_events(self) -> Self {
        self.inner.lock().no_events = true;
        self
    }

    /// Makes every n-th such call fail.
    pub fn fail(&self, call: Call, every: u64) {
        self.inner.lock().failing.insert(call, every);
    }

    /// Makes such calls succeed without any effect.
    pub fn lie(&self, call: Call) {
        self.inner.lock().lying = Some(call);
    }

    /// Adds a context.
    pub fn add_context(&self, context: Context, device: i32) {
        let mut inner = self.inner.lock();
        inner.born += 1;
        let state = ContextState {
            device,
            born: inner.born,
            submitted: 0,
            after: HashMap::new(),
        };
        inner.contexts.insert(context, state);
    }

    /// Destroys a context with its memory and work.
    pub fn destroy_context(&self, context: Context) {
        let mut inner = self.inner.lock();
        inner.contexts.remove(&context);
        inner.events.remove(&context);
        inner.works.retain(|work| work.context != context);
        let gone: Vec<_> = inner
            .allocations
            .iter()
            .filter(|(_, a)| a.1 == context)
            .map(|(a, _)| *a)
            .collect();
        for address in gone {
            if let Some((bytes, _)) = inner.allocations.remove(&address) {
                inner
                    .grants
                    .retain(|grant, _| *grant < address || *grant >= address + bytes);
                // Others that use memory of a context when it is destroyed have lost already.
                let uses = |w: &Work| w.uses.iter().any(|u| overlap(u.0, u.1, address, bytes));
                inner.works.retain(|work| !uses(work));
            }
        }
    }

    /// The pool handed memory out. Returns the number of this handing out.
    pub fn granted(&self, address: Address, bytes: u64) -> u64 {
        let mut inner = self.inner.lock();
        let inside = inner.allocations.range(..=address).next_back();
        if inside.is_none_or(|(base, (size, _))| address + bytes > base + size) {
            inner
                .findings
                .push(format!("{address:#x} was handed out but is no memory"));
        }
        let before = inner.grants.range(..address + bytes).next_back();
        if before.is_some_and(|(other, (size, _))| other + size > address) {
            inner
                .findings
                .push(format!("{address:#x} was handed out twice"));
        }
        inner.granted += 1;
        let number = inner.granted;
        inner.grants.insert(address, (bytes, number));
        number
    }

    /// The caller gave memory back.
    pub fn returned(&self, address: Address) {
        self.inner.lock().grants.remove(&address);
    }

    /// Submits work that uses memory.
    pub fn launch(&self, context: Context, uses: &[Use]) {
        let mut inner = self.inner.lock();
        let Some(state) = inner.contexts.get_mut(&context) else {
            return;
        };
        state.submitted += 1;
        let (number, after) = (state.submitted, state.after.clone());
        let mut races = Vec::new();
        for work in &inner.works {
            let ordered = after
                .get(&work.context)
                .is_some_and(|upto| work.number <= *upto);
            for (address, bytes, number) in uses {
                let clash = |u: &Use| u.2 != *number && overlap(u.0, u.1, *address, *bytes);
                if !ordered && work.uses.iter().any(clash) {
                    races.push(format!(
                        "race on {address:#x} between {:?} and {context:?}",
                        work.context
                    ));
                }
            }
        }
        inner.findings.append(&mut races);
        inner.works.push(Work {
            context,
            number,
            after,
            uses: uses.to_vec(),
        });
    }

    /// Replays a graph: its memory must still be what it was.
    pub fn replay(&self, context: Context, uses: &[Use]) {
        {
            let mut inner = self.inner.lock();
            for (address, bytes, number) in uses {
                let inside = inner.allocations.range(..=*address).next_back();
                let mapped = inside.is_some_and(|(base, (size, _))| address + bytes <= base + size);
                let taken = inner.grants.iter().any(|(other, (size, n))| {
                    n != number && overlap(*other, *size, *address, *bytes)
                });
                if !mapped || taken {
                    inner
                        .findings
                        .push(format!("memory {address:#x} of a graph was given away"));
                }
            }
        }
        self.launch(context, uses);
    }

    /// Lets the n-th piece of work that may finish do so.
    pub fn finish(&self, n: usize) {
        let mut inner = self.inner.lock();
        let free: Vec<usize> = (0..inner.works.len())
            .filter(|i| {
                let after = &inner.works[*i].after;
                !inner
                    .works
                    .iter()
                    .any(|w| after.get(&w.context).is_some_and(|upto| w.number <= *upto))
            })
            .collect();
        if !free.is_empty() {
            let index = free[n % free.len()];
            inner.works.swap_remove(index);
        }
    }

    /// A stream of a context captures from now on. `refuses`: the driver would refuse allocations and
    /// frees meanwhile, because of the capture of this number.
    pub fn capture_begin(&self, context: Context, refuses: Option<u64>) {
        self.inner.lock().capturing.push((context, refuses));
    }

    /// The stream of the n-th capture does so no longer.
    pub fn capture_end(&self, n: usize) {
        self.inner.lock().capturing.swap_remove(n);
    }

    /// What went wrong.
    pub fn findings(&self) -> Vec<String> {
        self.inner.lock().findings.clone()
    }

    /// How often a call was made.
    pub fn calls(&self, call: Call) -> u64 {
        self.inner.lock().calls.get(&call).copied().unwrap_or(0)
    }

    /// Events that were recorded and not retired.
    pub fn events(&self) -> i64 {
        self.inner.lock().events.values().sum()
    }

    /// Bytes held on a device.
    pub fn held(&self, device: i32) -> u64 {
        self.inner.lock().held(device)
    }

    /// Highest bytes held on a device so far.
    pub fn peak(&self, device: i32) -> u64 {
        self.inner.lock().peaks.get(&device).copied().unwrap_or(0)
    }
}

impl Inner {
    /// Counts a call; it goes wrong if it should, or tells that it lies.
    fn enter(&mut self, call: Call, context: Context, fences: bool) -> Result<bool, Error> {
        let count = self.calls.entry(call).or_default();
        *count += 1;
        let fails = self
            .failing
            .get(&call)
            .is_some_and(|every| count.is_multiple_of(*every));
        let captures =
            |(of, _): &(Context, Option<u64>)| call != Call::Synchronize || *of == context;
        if fences && self.capturing.iter().any(captures) {
            self.findings
                .push(format!("{call:?} invalidates a capture"));
        }
        if !self.contexts.contains_key(&context) {
            self.findings
                .push(format!("{call:?} on a context that is gone"));
            return Err(Error::Failed);
        }
        if fails {
            Err(Error::Failed)
        } else {
            Ok(self.lying == Some(call))
        }
    }

    /// An event of a context that is gone must not be used.
    fn check(&mut self, event: Event) {
        if self
            .contexts
            .get(&event.context)
            .is_some_and(|c| c.born != event.born)
        {
            self.findings
                .push("an event of a context that is gone is used".into());
        }
    }

    fn held(&self, device: i32) -> u64 {
        let on = |context: &Context| {
            self.contexts
                .get(context)
                .is_some_and(|c| c.device == device)
        };
        self.allocations
            .values()
            .filter(|(_, context)| on(context))
            .map(|(bytes, _)| bytes)
            .sum()
    }

    fn complete(&self, event: Event) -> bool {
        !self
            .works
            .iter()
            .any(|w| w.context == event.context && w.number <= event.upto)
    }

    /// Finishes a context's work up to a point, and what has to come before it.
    fn finish_upto(&mut self, context: Context, upto: u64) {
        let mut todo = vec![(context, upto)];
        while let Some((context, upto)) = todo.pop() {
            let (done, rest) = std::mem::take(&mut self.works)
                .into_iter()
                .partition(|w| w.context == context && w.number <= upto);
            self.works = rest;
            let done: Vec<Work> = done;
            todo.extend(
                done.iter()
                    .flat_map(|w| w.after.iter().map(|(c, n)| (*c, *n))),
            );
        }
    }
}

impl Device for Sim {
    type Error = Error;
    type Event = Event;
    const OUT_OF_MEMORY: Error = Error::OutOfMemory;

    fn is_out_of_memory(error: Error) -> bool {
        error == Error::OutOfMemory
    }

    fn ordinal(&self, context: Context) -> Result<i32, Error> {
        self.inner
            .lock()
            .contexts
            .get(&context)
            .map(|c| c.device)
            .ok_or(Error::Failed)
    }

    fn allocate(&self, context: Context, bytes: u64) -> Result<Address, Error> {
        let mut inner = self.inner.lock();
        inner.enter(Call::Allocate, context, false)?;
        let device = inner.contexts.get(&context).map_or(0, |c| c.device);
        if inner.held(device).saturating_add(bytes) > inner.capacity {
            return Err(Error::OutOfMemory);
        }
        // The lowest gap: addresses come back soon, so that a stale one is noticed.
        let base = (device as u64 + 1) << 44;
        let mut at = base;
        for (address, (size, _)) in inner.allocations.range(base..base << 1) {
            if at + bytes <= *address {
                break;
            }
            at = (address + size).next_multiple_of(512);
        }
        inner.allocations.insert(at, (bytes, context));
        let held = inner.held(device);
        let peak = inner.peaks.entry(device).or_default();
        *peak = held.max(*peak);
        Ok(at)
    }

    fn born(&self) -> u64 {
        self.inner.lock().born
    }

    fn release(
        &self,
        context: Context,
        born: u64,
        address: Address,
        bytes: u64,
    ) -> Result<(), Error> {
        let mut inner = self.inner.lock();
        if inner.contexts.get(&context).is_none_or(|c| c.born > born) {
            return Err(Error::Failed);
        }
        let lies = inner.enter(Call::Release, context, false)?;
        if !lies {
            inner.finish_upto(context, u64::MAX);
        }
        if inner.allocations.remove(&address) != Some((bytes, context)) {
            inner
                .findings
                .push(format!("{address:#x} was given back but is no such memory"));
        }
        if inner
            .works
            .iter()
            .any(|w| w.uses.iter().any(|u| overlap(u.0, u.1, address, bytes)))
        {
            inner
                .findings
                .push(format!("{address:#x} was given back under work"));
        }
        if inner
            .grants
            .iter()
            .any(|(other, (size, _))| overlap(*other, *size, address, bytes))
        {
            inner
                .findings
                .push(format!("{address:#x} was given back while handed out"));
        }
        Ok(())
    }

    fn record(&self, context: Context) -> Result<Option<Event>, Error> {
        let mut inner = self.inner.lock();
        let lies = inner.enter(Call::Record, context, true)?;
        if inner.no_events {
            return Ok(None);
        }
        *inner.events.entry(context).or_default() += 1;
        let (upto, born) = inner
            .contexts
            .get(&context)
            .map_or((0, 0), |c| (c.submitted, c.born));
        Ok(Some(Event {
            context,
            upto: if lies { 0 } else { upto },
            born,
        }))
    }

    fn order(&self, context: Context, event: Event) -> Result<(), Error> {
        let mut inner = self.inner.lock();
        inner.check(event);
        if inner.enter(Call::Order, context, true)? {
            return Ok(());
        }
        if let Some(state) = inner.contexts.get_mut(&context) {
            let upto = state.after.entry(event.context).or_default();
            *upto = event.upto.max(*upto);
        }
        Ok(())
    }

    fn is_complete(&self, event: Event) -> Result<bool, Error> {
        let mut inner = self.inner.lock();
        inner.check(event);
        let lies = inner.enter(Call::Query, event.context, true)?;
        Ok(lies || inner.complete(event))
    }

    fn wait(&self, event: Event) -> Result<(), Error> {
        let mut inner = self.inner.lock();
        inner.check(event);
        if !inner.enter(Call::Wait, event.context, false)? {
            inner.finish_upto(event.context, event.upto);
        }
        Ok(())
    }

    fn captures(&self, context: Context) -> bool {
        let inner = self.inner.lock();
        inner.capturing.iter().any(|(of, _)| *of == context)
    }

    fn refusing(&self) -> Vec<u64> {
        let inner = self.inner.lock();
        let refusing = inner.capturing.iter().filter_map(|(_, refuses)| *refuses);
        refusing.collect()
    }

    fn retire(&self, event: Event) {
        *self.inner.lock().events.entry(event.context).or_default() -= 1;
    }

    fn synchronize(&self, context: Context) -> Result<(), Error> {
        let mut inner = self.inner.lock();
        if !inner.enter(Call::Synchronize, context, true)? {
            inner.finish_upto(context, u64::MAX);
        }
        Ok(())
    }

    fn memory_info(&self, context: Context) -> Result<(u64, u64), Error> {
        let inner = self.inner.lock();
        let device = inner.contexts.get(&context).ok_or(Error::Failed)?.device;
        Ok((
            inner.capacity.saturating_sub(inner.held(device)),
            inner.capacity,
        ))
    }
}
