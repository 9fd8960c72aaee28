//! Work for streams and graphs: accesses, duration and effect.

use crate::abi::{HostFn, UserData};
use crate::capture;
use crate::codes::{INVALID_VALUE, Outcome};
use crate::env::settings;
use crate::memory::{Allocation, Kind};
use crate::model::Touch;
use crate::oracle::What;
use crate::state::{Guard, State, now};

/// Kind of an address. It decides if the address may be host memory that the driver does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Device memory, or host memory that the device can reach.
    Device,
    Host,
    /// Either kind: the address decides it.
    Either,
}

/// Source or destination of a copy.
#[derive(Clone, Copy, Debug)]
pub struct Side {
    pub place: Place,
    /// Address of the first byte.
    pub address: u64,
    /// Distance from row to row, in bytes.
    pub pitch: u64,
    /// Distance from slice to slice, in bytes.
    pub slice: u64,
}

/// Copy of up to three dimensions.
#[derive(Clone, Copy, Debug)]
pub struct Copy {
    pub src: Side,
    pub dst: Side,
    /// Size of each row, in bytes.
    pub width: u64,
    /// Number of rows of a slice.
    pub height: u64,
    /// Number of slices to copy.
    pub depth: u64,
    /// True if each side is reached in a context of its own, as cuMemcpyPeer does. Such a copy
    /// needs no access between devices, not even of mappings and of pools' memory (measured on two
    /// H100).
    pub is_peer: bool,
}

/// Memset of rows of elements.
#[derive(Clone, Copy, Debug)]
pub struct Fill {
    /// Address of the first byte.
    pub address: u64,
    /// Distance from row to row, in bytes.
    pub pitch: u64,
    /// Size of an element: 1, 2 or 4 bytes.
    pub element: u64,
    /// Value written to each element.
    pub value: u32,
    /// Number of elements of a row.
    pub width: u64,
    /// Number of rows of the memset.
    pub height: u64,
}

/// Function that the host runs in a stream's order.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    pub function: HostFn,
    /// Argument of the function.
    pub data: UserData,
}

// SAFETY: the caller of the driver function promised that another thread may make the call.
unsafe impl Send for Call {}

#[derive(Clone, Debug)]
pub enum Work {
    /// A kernel that takes `duration` nanoseconds and touches these bytes.
    Kernel {
        /// Bytes that it touches, as far as known.
        touches: Vec<Touch>,
        /// Duration in nanoseconds.
        duration: u64,
    },
    Copy(Copy),
    Fill(Fill),
    Host(Call),
    /// No work, for an order between items.
    Empty,
    /// Handle of a graph within a graph.
    Child(u64),
    /// Records the event of this handle when the stream reaches it.
    Record(u64),
    /// Waits for the event of this handle when the stream reaches it.
    Wait(u64),
    /// Allocates these bytes within a graph or on a stream.
    Alloc(std::ops::Range<u64>),
    /// Frees these bytes within a graph or on a stream.
    Free(std::ops::Range<u64>),
}

impl Copy {
    /// Returns a copy of one row of bytes.
    pub fn line(dst: (Place, u64), src: (Place, u64), bytes: usize) -> Copy {
        let side = |(place, address)| Side {
            place,
            address,
            pitch: 0,
            slice: 0,
        };
        Copy {
            src: side(src),
            dst: side(dst),
            width: bytes as u64,
            height: 1,
            depth: 1,
            is_peer: false,
        }
    }

    fn rows(&self, side: &Side, writes: bool, touches: &mut Vec<Touch>) {
        for z in 0..self.depth {
            for y in 0..self.height {
                let start = side.address + z * side.slice + y * side.pitch;
                let bytes = start..start + self.width;
                match touches.last_mut() {
                    Some(last) if last.writes == writes && last.bytes.end == bytes.start => {
                        last.bytes.end = bytes.end;
                    }
                    _ => touches.push(Touch { bytes, writes }),
                }
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.width == 0 || self.height == 0 || self.depth == 0
    }

    fn run(&self) {
        for z in 0..self.depth {
            for y in 0..self.height {
                let src = self.src.address + z * self.src.slice + y * self.src.pitch;
                let dst = self.dst.address + z * self.dst.slice + y * self.dst.pitch;
                // SAFETY: device sides were checked against the table of memory, host sides are
                // the caller's promise; the two may overlap.
                unsafe { std::ptr::copy(src as *const u8, dst as *mut u8, self.width as usize) };
            }
        }
    }
}

impl Fill {
    fn touches(&self) -> Vec<Touch> {
        let row = self.width * self.element;
        if row == self.pitch || self.height == 1 {
            return vec![Touch::write(self.address, row * self.height)];
        }
        let row_at = |y| Touch::write(self.address + y * self.pitch, row);
        (0..self.height).map(row_at).collect()
    }

    fn run(&self) {
        for y in 0..self.height {
            let start = self.address + y * self.pitch;
            match self.element {
                // SAFETY: the bytes were checked against the table of memory.
                1 => unsafe {
                    std::ptr::write_bytes(start as *mut u8, self.value as u8, self.width as usize)
                },
                element => {
                    for x in 0..self.width {
                        let at = start + x * element;
                        match element {
                            // SAFETY: as above.
                            2 => unsafe { (at as *mut u16).write_unaligned(self.value as u16) },
                            // SAFETY: as above.
                            _ => unsafe { (at as *mut u32).write_unaligned(self.value) },
                        }
                    }
                }
            }
        }
    }
}

impl Work {
    /// Returns the kind of its item.
    pub fn what(&self) -> What {
        match self {
            Work::Kernel { .. } => What::Kernel,
            Work::Copy(_) => What::Copy,
            Work::Fill(_) => What::Set,
            Work::Host(_) => What::Host,
            Work::Alloc(_) | Work::Free(_) => What::Memory,
            Work::Child(_) => What::Graph,
            Work::Empty | Work::Record(_) | Work::Wait(_) => What::Nothing,
        }
    }

    /// Returns its duration in nanoseconds.
    pub fn duration(&self) -> u64 {
        match self {
            Work::Kernel { duration, .. } => *duration,
            Work::Copy(_) => settings().latency.of("copy"),
            Work::Fill(_) => settings().latency.of("set"),
            _ => 0,
        }
    }

    /// Returns the bytes that it touches, as far as the driver knows of them.
    pub fn touches(&self, state: &State) -> Vec<Touch> {
        match self {
            Work::Kernel { touches, .. } => touches.clone(),
            Work::Fill(fill) => fill.touches(),
            Work::Copy(copy) if !copy.is_empty() => {
                let mut touches = Vec::new();
                for (side, writes) in [(&copy.src, false), (&copy.dst, true)] {
                    if state.memory.is_known(side.place, side.address) {
                        copy.rows(side, writes, &mut touches);
                    }
                }
                touches
            }
            Work::Alloc(bytes) | Work::Free(bytes) => vec![Touch {
                bytes: bytes.clone(),
                writes: true,
            }],
            _ => Vec::new(),
        }
    }

    /// Performs its effect: moves or sets the bytes.
    pub fn run(&self) {
        match self {
            Work::Copy(copy) => copy.run(),
            Work::Fill(fill) => fill.run(),
            _ => {}
        }
    }

    fn has_effect(&self) -> bool {
        matches!(self, Work::Copy(_) | Work::Fill(_))
    }
}

/// Address below which no program has memory.
const LOWEST: u64 = 4096;

/// Returns a finding for a use of memory that the device has no access to.
///
/// Copies reach other devices' memory without access. Exceptions are mappings and memory of a
/// device's pool (measured on two H100).
fn stranger(state: &State, user: u64, touch: &Touch, work: &Work) -> Option<String> {
    let is_minded = |found: &Allocation| match work {
        Work::Kernel { .. } => true,
        Work::Copy(copy) if copy.is_peer => false,
        Work::Copy(_) if found.kind == Kind::Pool => found.device >= 0,
        _ => found.kind == Kind::Mapped,
    };
    let device = state.contexts.get(user).ok()?.device;
    let mut at = touch.bytes.start;
    while at < touch.bytes.end {
        let (base, found) = state.memory.find(at)?;
        if is_minded(found) && !crate::peer::may_touch(state, user, base, found, touch.writes) {
            return Some(format!(
                "access: use of {base:#x} of device {} from device {device} without access",
                found.device
            ));
        }
        at = base + found.size.max(1);
    }
    None
}

/// Removes and reports touches of no memory. Kernels run in spite of them; other work is refused.
fn check(state: &mut State, user: u64, work: &Work) -> Outcome<Vec<Touch>> {
    let mut touches = work.touches(state);
    let mut wrong = Vec::new();
    let strange = |touch| stranger(state, user, touch, work);
    wrong.extend(touches.iter().filter_map(strange));
    touches.retain(|touch| match state.memory.check(&touch.bytes) {
        Ok(()) => true,
        Err(finding) => {
            wrong.push(finding);
            false
        }
    });
    let has_null_side = match work {
        Work::Copy(copy) => !copy.is_empty() && copy.src.address.min(copy.dst.address) < LOWEST,
        _ => false,
    };
    let is_refused = has_null_side || !wrong.is_empty() && work.has_effect();
    for finding in wrong {
        state.model.find(format!("{finding} by {}", work.what()));
    }
    if is_refused {
        Err(INVALID_VALUE)
    } else {
        Ok(touches)
    }
}

/// Submits work to a stream, or adds it to the graph that the stream captures.
pub fn submit(state: &mut Guard, stream: u64, work: Work) -> Outcome {
    if capture::is_in_capture(state, stream)? {
        return capture::append(state, stream, work);
    }
    capture::legacy_call(state, stream)?;
    execute(state, stream, &work)
}

/// Submits work to a stream, without regard to captures.
pub fn execute(state: &mut Guard, stream: u64, work: &Work) -> Outcome {
    let found = state.streams.get(stream)?;
    let (lane, user) = (found.lane, found.context);
    match work {
        Work::Host(call) => {
            crate::hostfn::schedule(state, lane, *call);
            return Ok(());
        }
        Work::Record(event) => {
            let point = state.model.record(lane, now());
            if let Ok(event) = state.events.get_mut(*event) {
                event.recorded = crate::event::Recorded::At(point);
            }
            return Ok(());
        }
        Work::Wait(event) => {
            if let Ok(event) = state.events.get(*event)
                && let crate::event::Recorded::At(point) = event.recorded.clone()
            {
                state.model.wait(lane, &point);
            }
            return Ok(());
        }
        _ => {}
    }
    let touches = check(state, user, work)?;
    state
        .model
        .submit(lane, work.what(), &touches, work.duration(), now());
    if work.has_effect() {
        let gates: Vec<_> = state.model.finish(lane).closed_gates().cloned().collect();
        // Runs the effect at once. A later run gives the same result, since all work that depends
        // on it is ordered after it. Only the effect of a pending host function must come first.
        match gates.is_empty() {
            true => work.run(),
            false => crate::hostfn::defer(state, gates, work.clone()),
        }
    }
    Ok(())
}
