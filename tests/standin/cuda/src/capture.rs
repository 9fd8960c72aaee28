//! Stream capture: the streams in it, the calls that it forbids, and its invalidation by them.

use crate::codes::{
    CAPTURED_EVENT, ILLEGAL_STATE, INVALID_VALUE, Outcome, STREAM_CAPTURE_IMPLICIT,
    STREAM_CAPTURE_INVALIDATED, STREAM_CAPTURE_ISOLATION, STREAM_CAPTURE_MERGE,
    STREAM_CAPTURE_UNJOINED, STREAM_CAPTURE_UNMATCHED, STREAM_CAPTURE_UNSUPPORTED,
    STREAM_CAPTURE_WRONG_THREAD,
};
use crate::event::Recorded;
use crate::state::State;
use crate::thread;
use crate::timeline::Kind;
use crate::work::Work;

/// Value of `CUstreamCaptureMode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Forbids unsafe calls to every thread.
    Global,
    /// Forbids unsafe calls to the capturing thread only.
    ThreadLocal,
    /// Forbids unsafe calls to no thread.
    Relaxed,
}

impl Mode {
    /// Returns the mode for a number of the API.
    pub fn from_number(number: u32) -> Outcome<Mode> {
        match number {
            0 => Ok(Mode::Global),
            1 => Ok(Mode::ThreadLocal),
            2 => Ok(Mode::Relaxed),
            _ => Err(INVALID_VALUE),
        }
    }
}

/// A capture that has begun and not ended.
#[derive(Debug)]
pub struct Capture {
    /// Number that no other capture has.
    pub id: u64,
    /// Stream on which it began.
    pub origin: u64,
    /// Handle of the graph that it builds.
    pub graph: u64,
    /// True if the graph existed before the capture. Such a graph stays if the capture fails.
    pub into_given_graph: bool,
    mode: Mode,
    thread: u64,
    is_valid: bool,
}

/// All captures that have begun and not ended.
#[derive(Debug, Default)]
pub struct Captures {
    open: Vec<Capture>,
    ids: u64,
}

impl Captures {
    fn get(&self, id: u64) -> Option<&Capture> {
        self.open.iter().find(|capture| capture.id == id)
    }

    fn invalidate(&mut self, which: impl Fn(&Capture) -> bool) -> bool {
        let mut any = false;
        for capture in self.open.iter_mut().filter(|capture| which(capture)) {
            capture.is_valid = false;
            any = true;
        }
        any
    }
}

/// Part of a stream in a capture.
#[derive(Clone, Debug)]
pub struct Part {
    /// Number that identifies the capture.
    pub capture: u64,
    /// Nodes on which the stream's next node depends.
    pub tail: Vec<u64>,
}

/// Point in a capture that an event marks.
#[derive(Clone, Debug)]
pub struct Mark {
    capture: u64,
    nodes: Vec<u64>,
}

/// Checks a call that a capture may forbid. Such a call could synchronise, or allocate outside the
/// graph.
///
/// A capture that forbids it becomes invalid.
pub fn unsafe_call(state: &mut State) -> Outcome {
    if state.captures.open.is_empty() {
        return Ok(());
    }
    let (me, mode) = (thread::id(), thread::capture_mode());
    let forbids = |capture: &Capture| {
        let is_mine = capture.thread == me;
        match mode {
            Mode::Relaxed => false,
            Mode::ThreadLocal => is_mine && capture.mode != Mode::Relaxed,
            Mode::Global => {
                (is_mine && capture.mode != Mode::Relaxed)
                    || (!is_mine && capture.mode == Mode::Global)
            }
        }
    };
    match state.captures.invalidate(forbids) {
        true => Err(STREAM_CAPTURE_UNSUPPORTED),
        false => Ok(()),
    }
}

/// Checks a call about all streams of a context. It is forbidden in any mode while one of them
/// captures.
pub fn context_call(state: &mut State, context: u64) -> Outcome {
    if state.captures.open.is_empty() {
        return Ok(());
    }
    let parts: Vec<u64> = state
        .streams
        .iter()
        .filter(|(_, stream)| stream.context == context)
        .filter_map(|(_, stream)| stream.capture.as_ref().map(|part| part.capture))
        .collect();
    match state
        .captures
        .invalidate(|capture| parts.contains(&capture.id))
    {
        true => Err(STREAM_CAPTURE_UNSUPPORTED),
        false => Ok(()),
    }
}

/// Checks work on the legacy stream, or a wait for it. It would depend on blocking streams that
/// capture.
pub fn legacy_call(state: &mut State, stream: u64) -> Outcome {
    if state.captures.open.is_empty() {
        return Ok(());
    }
    let parts = legacy_conflicts(state, stream)?;
    match state
        .captures
        .invalidate(|capture| parts.contains(&capture.id))
    {
        true => Err(STREAM_CAPTURE_IMPLICIT),
        false => Ok(()),
    }
}

fn legacy_conflicts(state: &State, stream: u64) -> Outcome<Vec<u64>> {
    let stream = state.streams.get(stream)?;
    if stream.kind != Kind::Legacy {
        return Ok(Vec::new());
    }
    let context = stream.context;
    Ok(state
        .streams
        .iter()
        .filter(|(_, other)| other.context == context && other.kind == Kind::Blocking)
        .filter_map(|(_, other)| other.capture.as_ref().map(|part| part.capture))
        .collect())
}

/// Checks a synchronous call on a default stream.
pub fn sync_call(state: &mut State, stream: u64) -> Outcome {
    if is_in_capture(state, stream)? {
        return refuse(state, stream);
    }
    legacy_call(state, stream)?;
    unsafe_call(state)
}

/// Checks a synchronous copy or set. Unlike a query or a wait it is no unsafe call (recorded.txt).
pub fn copy_call(state: &mut State, stream: u64) -> Outcome {
    if is_in_capture(state, stream)? {
        return refuse(state, stream);
    }
    legacy_call(state, stream)
}

/// Checks a query of a stream, or a wait for it, by the host.
pub fn host_call(state: &mut State, stream: u64) -> Outcome {
    sync_call(state, stream)
}

/// Checks a query of an event, or a wait for it, by the host.
pub fn event_call(state: &mut State, event: u64) -> Outcome {
    if let Recorded::Captured(mark) = &state.events.get(event)?.recorded {
        let id = mark.capture;
        state.captures.invalidate(|capture| capture.id == id);
        return Err(CAPTURED_EVENT);
    }
    unsafe_call(state)
}

/// True if work on the stream goes into a graph. Returns an error if the capture is invalid.
pub fn is_in_capture(state: &State, stream: u64) -> Outcome<bool> {
    let Some(part) = &state.streams.get(stream)?.capture else {
        return Ok(false);
    };
    match state.captures.get(part.capture) {
        Some(capture) if capture.is_valid => Ok(true),
        Some(_) => Err(STREAM_CAPTURE_INVALIDATED),
        None => Ok(false),
    }
}

/// Refuses a call on a capturing stream and invalidates the capture.
pub fn refuse(state: &mut State, stream: u64) -> Outcome {
    if let Some(part) = &state.streams.get(stream)?.capture {
        let id = part.capture;
        state.captures.invalidate(|capture| capture.id == id);
    }
    Err(STREAM_CAPTURE_UNSUPPORTED)
}

/// Adds work to the graph that the stream captures, after the stream's last node.
pub fn append(state: &mut State, stream: u64, work: Work) -> Outcome {
    append_node(state, stream, work).map(drop)
}

/// Adds work as [`append`] does, and returns the node.
pub fn append_node(state: &mut State, stream: u64, work: Work) -> Outcome<u64> {
    let part = state
        .streams
        .get(stream)?
        .capture
        .clone()
        .ok_or(ILLEGAL_STATE)?;
    let graph = state.captures.get(part.capture).ok_or(ILLEGAL_STATE)?.graph;
    let node = crate::graph::add(state, graph, work, part.tail)?;
    if let Some(part) = &mut state.streams.get_mut(stream)?.capture {
        part.tail = vec![node];
    }
    Ok(node)
}

/// Returns the present point of a capturing stream in its capture.
pub fn mark(state: &State, stream: u64) -> Outcome<Mark> {
    let part = state
        .streams
        .get(stream)?
        .capture
        .as_ref()
        .ok_or(ILLEGAL_STATE)?;
    Ok(Mark {
        capture: part.capture,
        nodes: part.tail.clone(),
    })
}

/// Makes the next node of a capturing stream depend on an event.
pub fn wait_in_capture(state: &mut State, stream: u64, recorded: &Recorded) -> Outcome {
    let part = state
        .streams
        .get_mut(stream)?
        .capture
        .as_mut()
        .ok_or(ILLEGAL_STATE)?;
    let mine = part.capture;
    let code = match recorded {
        Recorded::Captured(mark) if mark.capture == mine => {
            for node in &mark.nodes {
                if !part.tail.contains(node) {
                    part.tail.push(*node);
                }
            }
            return Ok(());
        }
        Recorded::Captured(mark) => {
            let other = mark.capture;
            state.captures.invalidate(|capture| capture.id == other);
            STREAM_CAPTURE_MERGE
        }
        Recorded::Never | Recorded::At(_) => STREAM_CAPTURE_ISOLATION,
    };
    state.captures.invalidate(|capture| capture.id == mine);
    Err(code)
}

/// Adds a stream to a capture. The stream did not capture, and waits for an event of the capture.
pub fn join(state: &mut State, stream: u64, mark: &Mark) -> Outcome {
    match state.captures.get(mark.capture) {
        None => return Err(CAPTURED_EVENT),
        Some(capture) if !capture.is_valid => return Err(STREAM_CAPTURE_INVALIDATED),
        Some(_) => {}
    }
    let id = mark.capture;
    let joining = state.streams.get_mut(stream)?;
    if joining.kind == Kind::Legacy {
        state.captures.invalidate(|capture| capture.id == id);
        return Err(STREAM_CAPTURE_IMPLICIT);
    }
    joining.capture = Some(Part {
        capture: mark.capture,
        tail: mark.nodes.clone(),
    });
    Ok(())
}

/// Begins a capture, into `graph` after `tail` or into a new graph.
pub fn begin(state: &mut State, stream: u64, mode: u32, into: Option<(u64, Vec<u64>)>) -> Outcome {
    let mode = Mode::from_number(mode)?;
    let kind = state.streams.get(stream)?.kind;
    if kind == Kind::Legacy {
        return Err(STREAM_CAPTURE_UNSUPPORTED);
    }
    if is_in_capture(state, stream)? {
        return Err(ILLEGAL_STATE);
    }
    let into_given_graph = into.is_some();
    let (graph, tail) = into.unwrap_or_else(|| (crate::graph::new(state), Vec::new()));
    state.captures.ids += 1;
    let id = state.captures.ids;
    state.captures.open.push(Capture {
        id,
        origin: stream,
        graph,
        into_given_graph,
        mode,
        thread: thread::id(),
        is_valid: true,
    });
    state.streams.get_mut(stream)?.capture = Some(Part { capture: id, tail });
    Ok(())
}

/// Ends a capture and returns its graph.
pub fn end(state: &mut State, stream: u64) -> Outcome<u64> {
    let part = state
        .streams
        .get(stream)?
        .capture
        .clone()
        .ok_or(ILLEGAL_STATE)?;
    let id = part.capture;
    let capture = state.captures.get(id).ok_or(ILLEGAL_STATE)?;
    if capture.origin != stream {
        state.captures.invalidate(|capture| capture.id == id);
        return Err(STREAM_CAPTURE_UNMATCHED);
    }
    if capture.mode != Mode::Relaxed && capture.thread != thread::id() {
        // The capture ends all the same.
        close(state, id);
        return Err(STREAM_CAPTURE_WRONG_THREAD);
    }
    let (graph, is_valid, is_given) = (capture.graph, capture.is_valid, capture.into_given_graph);
    let joined = crate::graph::ancestors(state, &part.tail);
    let is_joined =
        |part: &Part| part.capture != id || part.tail.iter().all(|node| joined.contains(node));
    let all_joined = state
        .streams
        .iter()
        .filter_map(|(_, stream)| stream.capture.as_ref())
        .all(is_joined);
    close(state, id);
    let failure = match (is_valid, all_joined) {
        (true, true) => return Ok(graph),
        (false, _) => STREAM_CAPTURE_INVALIDATED,
        (true, false) => STREAM_CAPTURE_UNJOINED,
    };
    if !is_given {
        crate::graph::destroy(state, graph)?;
    }
    Err(failure)
}

fn close(state: &mut State, id: u64) {
    state.captures.open.retain(|capture| capture.id != id);
    for (_, stream) in state.streams.iter_mut() {
        if stream
            .capture
            .as_ref()
            .is_some_and(|part| part.capture == id)
        {
            stream.capture = None;
        }
    }
}

/// Returns a stream's `CUstreamCaptureStatus` (0 none, 1 active, 2 invalidated) and its capture.
pub fn status(state: &State, stream: u64) -> Outcome<(u32, Option<&Capture>)> {
    if !legacy_conflicts(state, stream)?.is_empty() {
        return Err(STREAM_CAPTURE_IMPLICIT);
    }
    let part = state.streams.get(stream)?.capture.as_ref();
    Ok(
        match part.and_then(|part| state.captures.get(part.capture)) {
            None => (0, None),
            Some(capture) => (if capture.is_valid { 1 } else { 2 }, Some(capture)),
        },
    )
}

/// Removes a destroyed stream from its capture. A capture that began on it ends; another becomes
/// invalid.
pub fn forget_stream(state: &mut State, stream: u64) -> Outcome {
    if let Some(part) = state.streams.get_mut(stream)?.capture.take() {
        let id = part.capture;
        if state.captures.get(id).is_some_and(|c| c.origin == stream) {
            close(state, id);
        } else {
            state.captures.invalidate(|capture| capture.id == id);
        }
    }
    Ok(())
}

/// Ends the captures of a destroyed context.
pub fn forget_context(state: &mut State, context: u64) {
    let gone: Vec<u64> = state
        .streams
        .iter()
        .filter(|(_, stream)| stream.context == context)
        .filter_map(|(_, stream)| stream.capture.as_ref().map(|part| part.capture))
        .collect();
    for id in gone {
        close(state, id);
    }
}
