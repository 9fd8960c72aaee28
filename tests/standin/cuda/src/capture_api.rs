//! Driver functions for stream capture.

use std::cell::RefCell;

use crate::abi::{EdgeData, In, Out};
use crate::api::Via;
use crate::capture::{self, Mode};
use crate::codes::{ILLEGAL_STATE, INVALID_VALUE, Outcome};
use crate::state::lock;
use crate::thread;

thread_local! {
    /// Targets of the pointers that the thread's last `cuStreamGetCaptureInfo` returned.
    static GIVEN: RefCell<(Vec<u64>, Vec<EdgeData>)> = const { RefCell::new((Vec::new(), Vec::new())) };
}

fn begin(via: Via, stream: u64, mode: u32) -> Outcome {
    let mut state = lock()?;
    let key = state.stream(via, stream)?;
    capture::begin(&mut state, key, mode, None)
}

struct Info {
    status: Out<u32>,
    id: Out<u64>,
    graph: Out<u64>,
    nodes: Out<*const u64>,
    edges: Out<*const EdgeData>,
    count: Out<usize>,
}

fn info(via: Via, stream: u64, to: Info) -> Outcome {
    to.status.required()?;
    let mut state = lock()?;
    let key = state.stream(via, stream)?;
    let (status, capture) = capture::status(&state, key)?;
    to.status.put(status)?;
    let Some(capture) = capture.filter(|_| status == 1) else {
        return Ok(());
    };
    to.id.maybe(capture.id);
    to.graph.maybe(capture.graph);
    let tail = state
        .streams
        .get(key)?
        .capture
        .as_ref()
        .map(|part| part.tail.clone());
    let tail = tail.unwrap_or_default();
    GIVEN.with_borrow_mut(|(nodes, edges)| {
        to.count.maybe(tail.len());
        *edges = vec![EdgeData::default(); tail.len()];
        *nodes = tail;
        to.nodes.maybe(nodes.as_ptr());
        to.edges.maybe(edges.as_ptr());
    });
    Ok(())
}

fn nowhere<T>() -> Out<T> {
    Out::nowhere()
}

fn update(via: Via, stream: u64, nodes: In<u64>, count: usize, flags: u32) -> Outcome {
    let nodes = nodes_or_none(nodes, count)?;
    let mut state = lock()?;
    let key = state.stream(via, stream)?;
    if !capture::is_in_capture(&state, key)? {
        return Err(ILLEGAL_STATE);
    }
    for node in &nodes {
        state.nodes.get(*node)?;
    }
    let part = state
        .streams
        .get_mut(key)?
        .capture
        .as_mut()
        .ok_or(ILLEGAL_STATE)?;
    match flags {
        0 => part.tail.extend(nodes),
        1 => part.tail = nodes,
        _ => return Err(INVALID_VALUE),
    }
    Ok(())
}

/// Reads a list of nodes, which may be null if `count` is 0.
pub fn nodes_or_none(nodes: In<u64>, count: usize) -> Outcome<Vec<u64>> {
    nodes.list(count)
}

api! {
    /// Begins a capture in global mode.
    cuStreamBeginCapture 10000 => fn cuStreamBeginCapture | cuStreamBeginCapture_ptsz[via](stream: u64) {
        begin(via, stream, 0)
    }
    /// Begins a capture in the given mode.
    cuStreamBeginCapture 10010 => fn cuStreamBeginCapture_v2 | cuStreamBeginCapture_v2_ptsz[via](stream: u64, mode: u32) {
        begin(via, stream, mode)
    }
    /// Begins a capture into a graph.
    cuStreamBeginCaptureToGraph 12030 => fn cuStreamBeginCaptureToGraph | cuStreamBeginCaptureToGraph_ptsz[via](stream: u64, graph: u64, nodes: In<u64>, _edges: In<EdgeData>, count: usize, mode: u32) {
        let nodes = nodes_or_none(nodes, count)?;
        let mut state = lock()?;
        let key = state.stream(via, stream)?;
        state.graphs.get(graph)?;
        capture::begin(&mut state, key, mode, Some((graph, nodes)))
    }
    /// Ends a capture and returns its graph.
    cuStreamEndCapture 10000 => fn cuStreamEndCapture | cuStreamEndCapture_ptsz[via](stream: u64, graph: Out<u64>) {
        graph.required()?;
        let mut state = lock()?;
        let key = state.stream(via, stream)?;
        graph.put(0)?;
        graph.put(capture::end(&mut state, key)?)
    }
    /// Reports the capture status of a stream.
    cuStreamIsCapturing 10000 => fn cuStreamIsCapturing | cuStreamIsCapturing_ptsz[via](stream: u64, status: Out<u32>) {
        let mut state = lock()?;
        let key = state.stream(via, stream)?;
        status.put(capture::status(&state, key)?.0)
    }
    /// Reports status and number of a stream's capture.
    cuStreamGetCaptureInfo 10010 => fn cuStreamGetCaptureInfo | cuStreamGetCaptureInfo_ptsz[via](stream: u64, status: Out<u32>, id: Out<u64>) {
        info(via, stream, Info { status, id, graph: nowhere(), nodes: nowhere(), edges: nowhere(), count: nowhere() })
    }
    /// Reports a stream's capture, with its graph and the nodes of its next dependencies.
    cuStreamGetCaptureInfo 11030 => fn cuStreamGetCaptureInfo_v2 | cuStreamGetCaptureInfo_v2_ptsz[via](stream: u64, status: Out<u32>, id: Out<u64>, graph: Out<u64>, nodes: Out<*const u64>, count: Out<usize>) {
        info(via, stream, Info { status, id, graph, nodes, edges: nowhere(), count })
    }
    /// Reports a stream's capture, with its graph, nodes and edges.
    cuStreamGetCaptureInfo 12030 => fn cuStreamGetCaptureInfo_v3 | cuStreamGetCaptureInfo_v3_ptsz[via](stream: u64, status: Out<u32>, id: Out<u64>, graph: Out<u64>, nodes: Out<*const u64>, edges: Out<*const EdgeData>, count: Out<usize>) {
        info(via, stream, Info { status, id, graph, nodes, edges, count })
    }
    /// Changes the dependencies of a capturing stream's next node.
    cuStreamUpdateCaptureDependencies 11030 => fn cuStreamUpdateCaptureDependencies | cuStreamUpdateCaptureDependencies_ptsz[via](stream: u64, nodes: In<u64>, count: usize, flags: u32) {
        update(via, stream, nodes, count, flags)
    }
    /// Changes the dependencies of a capturing stream's next node.
    cuStreamUpdateCaptureDependencies 12030 => fn cuStreamUpdateCaptureDependencies_v2 | cuStreamUpdateCaptureDependencies_v2_ptsz[via](stream: u64, nodes: In<u64>, _edges: In<EdgeData>, count: usize, flags: u32) {
        update(via, stream, nodes, count, flags)
    }
    /// Exchanges the thread's capture mode. The mode decides which unsafe calls the thread may
    /// make.
    cuThreadExchangeStreamCaptureMode 10010 => fn cuThreadExchangeStreamCaptureMode(mode: Out<u32>) {
        lock()?;
        let wanted = Mode::from_number(mode.get()?)?;
        mode.put(thread::exchange_capture_mode(wanted) as u32)
    }
}
