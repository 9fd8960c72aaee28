//! The driver's calls that the pool of `cudaMalloc` makes, as the simulated device answers them.
//!
//! Work of one context finishes in any order that the orderings allow, as if each piece had a stream of its own.

use super::memory::overlap;
use super::{Call, Error, Event, Inner, Use};
use crate::device_pool::Device;
use crate::handles::{Address, Context};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};

/// All devices, with contexts that own their memory.
#[derive(Default)]
pub struct DeviceSim {
    inner: Mutex<Devices>,
}

#[derive(Default)]
struct Devices {
    inner: Inner,
    no_events: bool,
    /// Driver allocations: bytes and context.
    allocations: BTreeMap<Address, (u64, Context)>,
    /// The contexts of streams that capture, and the capture because of which the driver refuses allocations
    /// meanwhile, if it does.
    capturing: Vec<(Context, Option<u64>)>,
    /// Of this number of calls one fails.
    failing: HashMap<Call, u64>,
    /// Contexts that are being destroyed.
    closed: Vec<Context>,
}

impl DeviceSim {
    /// Devices with this number of bytes of memory each.
    pub fn new(capacity: u64) -> Self {
        let sim = DeviceSim::default();
        let mut devices = sim.inner.lock();
        (devices.inner.capacity, devices.inner.time.lonely) = (capacity, true);
        drop(devices);
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
        self.inner.lock().inner.lying = Some(call);
    }

    /// Adds a context.
    pub fn add_context(&self, context: Context, device: i32) {
        self.inner.lock().inner.time.add_context(context, device);
    }

    /// Begins to destroy a context, whose work is complete. The driver refuses its events until it is gone.
    pub fn close_context(&self, context: Context) {
        let mut devices = self.inner.lock();
        devices.finish(context);
        devices.closed.push(context);
    }

    /// Destroys a context with its memory and work.
    pub fn destroy_context(&self, context: Context) {
        let mut devices = self.inner.lock();
        devices.closed.retain(|closed| *closed != context);
        let Devices {
            inner, allocations, ..
        } = &mut *devices;
        inner.time.end_context(context);
        inner.time.drop_events(context);
        inner.prune();
        allocations.retain(|address, (bytes, of)| {
            if *of != context {
                return true;
            }
            inner.lose(*address, *bytes);
            false
        });
    }

    /// The pool handed memory out. Returns the number of this handing out.
    pub fn granted(&self, address: Address, bytes: u64) -> u64 {
        self.inner.lock().inner.granted(address, bytes)
    }

    /// The program gave memory back.
    pub fn returned(&self, address: Address) {
        self.inner.lock().inner.memory.grants.remove(&address);
    }

    /// Submits work that uses memory.
    pub fn launch(&self, context: Context, uses: &[Use]) {
        self.inner.lock().launch(context, uses);
    }

    /// Replays a graph: its memory must still be what it was.
    pub fn replay(&self, context: Context, uses: &[Use]) {
        let mut devices = self.inner.lock();
        devices.inner.check_replay(uses);
        devices.launch(context, uses);
    }

    /// Lets the n-th piece of work that may finish do so.
    pub fn finish(&self, n: usize) {
        self.inner.lock().inner.time.step(n);
    }

    /// As [`DeviceSim::finish`], and the host knows: for many operations, of which each would be looked at again.
    pub fn finish_seen(&self, n: usize) {
        let mut devices = self.inner.lock();
        devices.inner.time.step(n);
        devices.inner.time.know();
        devices.inner.prune();
    }

    /// Lets all work finish.
    pub fn finish_unseen(&self) {
        self.inner.lock().inner.time.finish_unseen();
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
        self.inner.lock().inner.findings.clone()
    }

    /// How often a call was made.
    pub fn calls(&self, call: Call) -> u64 {
        let devices = self.inner.lock();
        devices.inner.calls.get(&(0, call)).copied().unwrap_or(0)
    }

    /// Events that were recorded and not retired.
    pub fn events(&self) -> usize {
        self.inner.lock().inner.time.events()
    }

    /// Bytes held on a device.
    pub fn held(&self, device: i32) -> u64 {
        self.inner.lock().held(device).0
    }

    /// Highest bytes held on a device so far.
    pub fn peak(&self, device: i32) -> u64 {
        self.inner.lock().held(device).1
    }
}

impl Devices {
    fn launch(&mut self, context: Context, uses: &[Use]) {
        if self.inner.time.device(context).is_some() {
            let stream = self.inner.time.idle_stream(context);
            self.inner.launch(stream, uses);
        }
    }

    /// Counts a call; it goes wrong if it should, or tells that it lies. `fences`: it may invalidate a capture.
    fn enter(&mut self, call: Call, context: Context, fences: bool) -> Result<bool, Error> {
        let captures =
            |(of, _): &(Context, Option<u64>)| call != Call::Synchronize || *of == context;
        if fences && self.capturing.iter().any(captures) {
            let finding = format!("{call:?} invalidates a capture");
            self.inner.findings.push(finding);
        }
        self.inner.failing = self
            .failing
            .get(&call)
            .map(|every| (call, *every, Error::Failed));
        let entered = self.inner.enter(0, call);
        if self.inner.time.device(context).is_none() {
            let finding = format!("{call:?} on a context that is gone");
            self.inner.findings.push(finding);
            return Err(Error::Failed);
        }
        entered
    }

    /// As [`Devices::enter`], of a call about an event.
    fn enter_event(
        &mut self,
        call: Call,
        event: Event,
        fences: bool,
    ) -> Result<(bool, super::Clock), Error> {
        let context = self.inner.time.context_of(event.0);
        let clock = self.inner.event(event)?;
        let lies = self.enter(call, context.unwrap_or(Context(0)), fences)?;
        Ok((lies, clock))
    }

    fn finish(&mut self, context: Context) {
        let clock = self.inner.time.of_context(context);
        self.inner.time.finish(&clock);
        self.inner.prune();
    }

    /// Bytes that a device holds, and the most that it did.
    fn held(&self, device: i32) -> (u64, u64) {
        let held = self.inner.memory.held.get(&(device as usize));
        held.copied().unwrap_or_default()
    }
}

impl Inner {
    /// Memory ends with its context, whatever others do with it.
    fn lose(&mut self, address: Address, bytes: u64) {
        let within = |at: &u64| *at >= address && *at < address + bytes;
        self.memory.grants.retain(|grant, _| !within(grant));
        for work in &mut self.works {
            work.uses
                .retain(|(used, _)| !overlap(used.0, used.1, address, bytes));
        }
        self.give_back(address, bytes);
    }

    /// A driver allocation is no more.
    fn give_back(&mut self, address: Address, bytes: u64) {
        let handle = self.memory.mappings.get(&address).map_or(0, |m| m.handle);
        let unmapped = self.memory.unmap(address, bytes);
        self.find(unmapped);
        let destroyed = self.memory.destroy(handle, bytes);
        self.find(destroyed);
    }
}

impl Device for DeviceSim {
    type Error = Error;
    type Event = Event;
    const OUT_OF_MEMORY: Error = Error::OutOfMemory;

    fn is_out_of_memory(error: Error) -> bool {
        error == Error::OutOfMemory
    }

    fn is_end(error: Error) -> bool {
        error == Error::Ended
    }

    fn ordinal(&self, context: Context) -> Result<i32, Error> {
        let devices = self.inner.lock();
        devices.inner.time.device(context).ok_or(Error::Failed)
    }

    fn allocate(&self, context: Context, bytes: u64) -> Result<Address, Error> {
        let mut devices = self.inner.lock();
        devices.enter(Call::Allocate, context, false)?;
        let device = devices.inner.time.device(context).unwrap_or(0);
        if devices.held(device).0.saturating_add(bytes) > devices.inner.capacity {
            return Err(Error::OutOfMemory);
        }
        let all = u8::MAX;
        let address = devices.inner.memory.allocate(device as usize, bytes, all);
        devices.allocations.insert(address, (bytes, context));
        Ok(address)
    }

    fn born(&self) -> u64 {
        self.inner.lock().inner.time.last()
    }

    fn release(
        &self,
        context: Context,
        born: u64,
        address: Address,
        bytes: u64,
    ) -> Result<(), Error> {
        let mut devices = self.inner.lock();
        let made = devices.inner.time.born(context);
        if made.is_none_or(|made| made > born) {
            return Err(Error::Failed);
        }
        if !devices.enter(Call::Release, context, false)? {
            devices.finish(context);
        }
        if devices.allocations.remove(&address) != Some((bytes, context)) {
            let finding = format!("{address:#x} was given back but is no such memory");
            devices.inner.findings.push(finding);
            return Ok(());
        }
        devices.inner.vanish(address, bytes);
        devices.inner.give_back(address, bytes);
        Ok(())
    }

    fn record(&self, context: Context) -> Result<Option<Event>, Error> {
        let mut devices = self.inner.lock();
        if devices.closed.contains(&context) {
            return Err(Error::Ended);
        }
        let lies = devices.enter(Call::Record, context, true)?;
        if devices.no_events {
            return Ok(None);
        }
        let time = &mut devices.inner.time;
        let clock = match lies {
            true => super::Clock::default(),
            false => time.of_context(context),
        };
        Ok(Some(Event(time.record(context, clock))))
    }

    fn order(&self, context: Context, event: Event) -> Result<(), Error> {
        let mut devices = self.inner.lock();
        let clock = devices.inner.event(event)?;
        if !devices.enter(Call::Order, context, true)? {
            devices.inner.time.order_contexts(&[context], &clock);
        }
        Ok(())
    }

    fn is_complete(&self, event: Event) -> Result<bool, Error> {
        let mut devices = self.inner.lock();
        let (lies, clock) = devices.enter_event(Call::Query, event, true)?;
        let complete = lies || devices.inner.time.has_finished(&clock);
        devices.inner.prune();
        Ok(complete)
    }

    fn wait(&self, event: Event) -> Result<(), Error> {
        let mut devices = self.inner.lock();
        let (lies, clock) = devices.enter_event(Call::Wait, event, false)?;
        if !lies {
            devices.inner.time.finish(&clock);
            devices.inner.prune();
        }
        Ok(())
    }

    fn captures(&self, context: Context) -> bool {
        let devices = self.inner.lock();
        devices.capturing.iter().any(|(of, _)| *of == context)
    }

    fn refusing(&self) -> Vec<u64> {
        let devices = self.inner.lock();
        let refusing = devices.capturing.iter().filter_map(|(_, refuses)| *refuses);
        refusing.collect()
    }

    /// Cannot be.
    fn drain(&self, _: Context) -> Result<(), Error> {
        let lies = self.inner.lock().inner.lies(Call::Drain);
        lies.then_some(()).ok_or(Error::Failed)
    }

    fn retire(&self, event: Event) {
        self.inner.lock().inner.time.retire(event.0);
    }

    fn synchronize(&self, context: Context) -> Result<(), Error> {
        let mut devices = self.inner.lock();
        if !devices.enter(Call::Synchronize, context, true)? {
            devices.finish(context);
        }
        Ok(())
    }

    fn memory_info(&self, context: Context) -> Result<(u64, u64), Error> {
        let devices = self.inner.lock();
        let device = devices.inner.time.device(context).ok_or(Error::Failed)?;
        let capacity = devices.inner.capacity;
        Ok((capacity.saturating_sub(devices.held(device).0), capacity))
    }
}
