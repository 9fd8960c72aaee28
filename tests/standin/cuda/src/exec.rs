//! Executable graphs: instantiated from graphs, launched on streams.

use std::ops::Range;

use crate::abi::{In, InstantiateParams, Out, UpdateInfo};
use crate::alias::{self, Reach};
use crate::api::Via;
use crate::capture;
use crate::codes::{GRAPH_EXEC_UPDATE_FAILURE, INVALID_VALUE, NOT_SUPPORTED, Outcome};
use crate::env::settings;
use crate::model::Touch;
use crate::state::{Guard, State, lock, now};
use crate::timeline::Point;
use crate::work::Work;

/// `CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH`.
const AUTO_FREE_ON_LAUNCH: u64 = 1;
/// All known flags: auto free on launch, upload, device launch and node priority.
const KNOWN_FLAGS: u64 = 15;

/// One step of an executable graph.
#[derive(Clone, Debug)]
struct Step {
    work: Work,
    kind: u32,
    after: Vec<usize>,
}

#[derive(Clone, Debug)]
pub struct Exec {
    steps: Vec<Step>,
    flags: u64,
    /// End of its last launch. Launches of one executable graph do not overlap.
    last: Option<Point>,
    /// Address ranges that its allocation nodes allocate.
    allocations: Vec<Range<u64>>,
    /// Device of its context at the instantiation, and the bytes taken there.
    taken: Option<(i32, u64)>,
}

/// Appends the steps of a graph, each after its dependencies. Child graphs are replaced by their
/// steps.
///
/// Returns the steps with which the graph ends.
fn flatten(
    state: &State,
    graph: u64,
    entry: &[usize],
    steps: &mut Vec<Step>,
) -> Outcome<Vec<usize>> {
    let mut waiting = state.graphs.get(graph)?.nodes.clone();
    // For each finished node: its handle and the steps with which it ends.
    let mut done: Vec<(u64, Vec<usize>)> = Vec::new();
    while !waiting.is_empty() {
        let is_done = |node: &u64| done.iter().any(|(other, _)| other == node);
        let ready = waiting.iter().position(|node| {
            let after = state.nodes.get(*node).map(|node| &node.after);
            after.is_ok_and(|after| after.iter().all(is_done))
        });
        let handle = waiting.remove(ready.ok_or(INVALID_VALUE)?);
        let node = state.nodes.get(handle)?;
        let mut after: Vec<usize> = entry.to_vec();
        for before in &node.after {
            after.extend(
                done.iter()
                    .filter(|(other, _)| other == before)
                    .flat_map(|(_, ends)| ends),
            );
        }
        let ends = match &node.work {
            Work::Child(child) => flatten(state, *child, &after, steps)?,
            work => {
                let (work, kind) = (work.clone(), node.kind());
                steps.push(Step { work, kind, after });
                vec![steps.len() - 1]
            }
        };
        done.push((handle, ends));
    }
    let mut ends: Vec<usize> = done.into_iter().flat_map(|(_, ends)| ends).collect();
    if ends.is_empty() {
        ends = entry.to_vec();
    }
    Ok(ends)
}

/// Reports steps that touch the same bytes without an order between them.
fn find_races(state: &mut State, steps: &[Step]) {
    let words = steps.len().div_ceil(64);
    let mut before = vec![vec![0u64; words]; steps.len()];
    // By place, as mapped now: mappings at a later launch are not known yet.
    let reach = |touch: Touch| {
        let reaches = state.model.reach(touch.bytes);
        reaches.map(move |reach| (reach, touch.writes))
    };
    let touches: Vec<Vec<(Reach, bool)>> = steps
        .iter()
        .map(|step| {
            step.work
                .touches(state)
                .into_iter()
                .flat_map(reach)
                .collect()
        })
        .collect();
    for (index, step) in steps.iter().enumerate() {
        for other in &step.after {
            let inherited = before[*other].clone();
            let mine = &mut before[index];
            mine.iter_mut()
                .zip(inherited)
                .for_each(|(mine, theirs)| *mine |= theirs);
            mine[other / 64] |= 1 << (other % 64);
        }
        for other in 0..index {
            if before[index][other / 64] >> (other % 64) & 1 == 1 {
                continue;
            }
            let clash = touches[index].iter().find_map(|(mine, i_write)| {
                touches[other].iter().find_map(|(theirs, they_write)| {
                    let (a, b) = (mine.places(), theirs.places());
                    let shared = a.start.max(b.start)..a.end.min(b.end);
                    let is_clash = (*i_write || *they_write) && !shared.is_empty();
                    is_clash.then(|| alias::name(&shared, mine.shift, theirs.shift))
                })
            });
            if let Some(bytes) = clash {
                state.model.find(format!(
                    "race: {} and {} in one graph are not ordered, {bytes}",
                    steps[other].work.what(),
                    step.work.what(),
                ));
            }
        }
    }
}

fn build(state: &mut State, graph: u64, flags: u64) -> Outcome<Exec> {
    if flags & !KNOWN_FLAGS != 0 {
        return Err(INVALID_VALUE);
    }
    let mut steps = Vec::new();
    flatten(state, graph, &[], &mut steps)?;
    find_races(state, &steps);
    let allocations = steps
        .iter()
        .filter_map(|step| match &step.work {
            Work::Alloc(bytes) => Some(bytes.clone()),
            _ => None,
        })
        .collect();
    Ok(Exec {
        steps,
        flags,
        last: None,
        allocations,
        taken: None,
    })
}

fn instantiate(exec: Out<u64>, graph: u64, flags: u64) -> Outcome {
    exec.required()?;
    let mut state = lock()?;
    let bound = crate::graph::has_memory_nodes(&state, graph)?;
    if bound && state.execs.contains(state.graphs.get(graph)?.exec) {
        return Err(NOT_SUPPORTED);
    }
    let mut built = build(&mut state, graph, flags)?;
    let bytes = settings().graph_bytes;
    let current = state
        .current()
        .and_then(|current| state.contexts.get(current));
    if let (Ok(current), true) = (current, bytes > 0) {
        let device = current.device;
        state.charge(device, bytes)?;
        built.taken = Some((device, bytes));
    }
    for bytes in &built.allocations {
        crate::graph_memory::share(&mut state, bytes.start)?;
    }
    let handle = state.execs.insert(built);
    state.graphs.get_mut(graph)?.exec = handle;
    exec.put(handle)
}

fn launch(via: Via, exec: u64, stream: u64) -> Outcome {
    let mut state = lock()?;
    let key = state.stream(via, stream)?;
    let Exec {
        steps,
        flags,
        last,
        allocations,
        ..
    } = state.execs.get(exec).map_err(|_| INVALID_VALUE)?.clone();
    if capture::is_in_capture(&state, key)? {
        // The launch becomes part of the graph, as a child graph would.
        return capture_launch(&mut state, key, &steps);
    }
    capture::legacy_call(&mut state, key)?;
    for (index, bytes) in allocations.iter().enumerate() {
        if crate::graph_memory::is_live(&mut state, bytes.start) {
            if flags & AUTO_FREE_ON_LAUNCH == 0 {
                return Err(INVALID_VALUE);
            }
            crate::graph_memory::end_use(&mut state, bytes.start)?;
        }
        if let Err(error) = crate::graph_memory::begin_use(&mut state, bytes.start) {
            // The launch failed: none of its allocations is live.
            for begun in allocations.iter().take(index) {
                crate::graph_memory::end_use(&mut state, begun.start)?;
            }
            return Err(error);
        }
    }
    let lane = state.streams.get(key)?.lane;
    if let Some(last) = last {
        state.model.wait(lane, &last);
    }
    for step in &steps {
        crate::work::execute(&mut state, key, &step.work)?;
        if let Work::Free(bytes) = &step.work {
            // The memory returns to the graphs in the order of the stream.
            crate::graph_memory::end_use(&mut state, bytes.start)?;
        }
    }
    let point = state.model.record(lane, now());
    state.execs.get_mut(exec)?.last = Some(point);
    Ok(())
}

fn capture_launch(state: &mut Guard, key: u64, steps: &[Step]) -> Outcome {
    let graph = crate::graph::new(state);
    let mut nodes = Vec::new();
    for step in steps {
        let after = step.after.iter().map(|index| nodes[*index]).collect();
        nodes.push(crate::graph::add(state, graph, step.work.clone(), after)?);
    }
    let added = capture::append(state, key, Work::Child(graph));
    crate::graph::destroy(state, graph)?;
    added
}

/// Replaces the steps of an executable graph and returns a `CUgraphExecUpdateResult`.
fn replace(state: &mut State, exec: u64, new: Exec) -> Outcome<u32> {
    let old = state.execs.get_mut(exec)?;
    let pairs = || new.steps.iter().zip(&old.steps);
    let is_other_shape =
        new.steps.len() != old.steps.len() || pairs().any(|(new, old)| new.after != old.after);
    // CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, ..._NODE_TYPE_CHANGED, ..._NOT_SUPPORTED.
    if is_other_shape {
        return Ok(2);
    }
    if pairs().any(|(new, old)| new.kind != old.kind) {
        return Ok(3);
    }
    if new.steps.iter().any(|step| matches!(step.kind, 10 | 11)) {
        return Ok(6);
    }
    let last = old.last.take();
    *old = Exec { last, ..new };
    Ok(0)
}

fn update(exec: u64, graph: u64) -> Outcome<u32> {
    let mut state = lock()?;
    let flags = state.execs.get(exec)?.flags;
    let new = build(&mut state, graph, flags)?;
    replace(&mut state, exec, new)
}

/// Replaces a child graph within an executable graph. `node` is the child's node in the original
/// graph.
fn set_child(exec: u64, node: u64, child: u64) -> Outcome {
    let mut state = lock()?;
    let flags = state.execs.get(exec)?.flags;
    state.graphs.get(child)?;
    let found = state.nodes.get_mut(node).map_err(|_| INVALID_VALUE)?;
    let graph = found.graph;
    let Work::Child(own) = found.work else {
        return Err(INVALID_VALUE);
    };
    found.work = Work::Child(child);
    let new = build(&mut state, graph, flags);
    state.nodes.get_mut(node)?.work = Work::Child(own);
    match replace(&mut state, exec, new?)? {
        0 => Ok(()),
        _ => Err(GRAPH_EXEC_UPDATE_FAILURE),
    }
}

api! {
    /// Makes a graph executable.
    cuGraphInstantiate 10000 => fn cuGraphInstantiate(exec: Out<u64>, graph: u64, _node: Out<u64>, _log: Out<u8>, _room: usize) {
        instantiate(exec, graph, 0)
    }
    /// Makes a graph executable.
    cuGraphInstantiate 11000 => fn cuGraphInstantiate_v2(exec: Out<u64>, graph: u64, _node: Out<u64>, _log: Out<u8>, _room: usize) {
        instantiate(exec, graph, 0)
    }
    /// Makes a graph executable, with flags.
    cuGraphInstantiateWithFlags 11040 => fn cuGraphInstantiateWithFlags(exec: Out<u64>, graph: u64, flags: u64) {
        instantiate(exec, graph, flags)
    }
    /// Makes a graph executable, with parameters.
    cuGraphInstantiateWithParams 12000 => fn cuGraphInstantiateWithParams | cuGraphInstantiateWithParams_ptsz[via](exec: Out<u64>, graph: u64, params: Out<InstantiateParams>) {
        let wanted = params.get()?;
        if wanted.upload != 0 {
            lock()?.stream(via, wanted.upload)?;
        }
        instantiate(exec, graph, wanted.flags)?;
        params.put(InstantiateParams { error_node: 0, result: 0, ..wanted })
    }
    /// Returns the flags of an executable graph.
    cuGraphExecGetFlags 12000 => fn cuGraphExecGetFlags(exec: u64, flags: Out<u64>) {
        flags.put(lock()?.execs.get(exec)?.flags)
    }
    /// Prepares a launch on the real device. Here there is nothing to prepare.
    cuGraphUpload 11010 => fn cuGraphUpload | cuGraphUpload_ptsz[via](exec: u64, stream: u64) {
        let mut state = lock()?;
        state.stream(via, stream)?;
        state.execs.get(exec).map(drop)
    }
    /// Launches an executable graph on a stream.
    cuGraphLaunch 10000 => fn cuGraphLaunch | cuGraphLaunch_ptsz[via](exec: u64, stream: u64) {
        launch(via, exec, stream)
    }
    /// Destroys an executable graph and frees its memory.
    cuGraphExecDestroy 10000 => fn cuGraphExecDestroy(exec: u64) {
        let mut state = lock()?;
        let exec = state.execs.remove(exec)?;
        if let Some((device, bytes)) = exec.taken {
            state.refund(device, bytes);
        }
        for bytes in exec.allocations {
            crate::graph_memory::drop_node(&mut state, bytes.start);
        }
        Ok(())
    }
    /// Replaces the parameters of an executable graph by those of a graph of the same shape.
    cuGraphExecUpdate 10020 => fn cuGraphExecUpdate(exec: u64, graph: u64, node: Out<u64>, result: Out<u32>) {
        let failure = update(exec, graph)?;
        node.maybe(0);
        result.maybe(failure);
        if failure == 0 { Ok(()) } else { Err(GRAPH_EXEC_UPDATE_FAILURE) }
    }
    /// Replaces the parameters of an executable graph by those of a graph of the same shape.
    cuGraphExecUpdate 12000 => fn cuGraphExecUpdate_v2(exec: u64, graph: u64, info: Out<UpdateInfo>) {
        info.required()?;
        let result = update(exec, graph)?;
        info.put(UpdateInfo { result, node: 0, from: 0 })?;
        if result == 0 { Ok(()) } else { Err(GRAPH_EXEC_UPDATE_FAILURE) }
    }
    /// Replaces the parameters of a child graph by those of a graph of the same shape.
    cuGraphExecChildGraphNodeSetParams 11010 => fn cuGraphExecChildGraphNodeSetParams(exec: u64, node: u64, child: u64) {
        set_child(exec, node, child)
    }
    /// Returns bytes of a device's graphs: in use now, highest use, held now, highest held.
    cuDeviceGetGraphMemAttribute 11040 => fn cuDeviceGetGraphMemAttribute(device: i32, attribute: u32, value: Out<u64>) {
        let mut state = lock()?;
        let memory = &state.device(device)?.graph_memory;
        value.put(match attribute {
            0 | 2 => memory.reserved[0],
            1 | 3 => memory.reserved[1],
            _ => return Err(INVALID_VALUE),
        })
    }
    /// Resets one of the two high-water marks.
    cuDeviceSetGraphMemAttribute 11040 => fn cuDeviceSetGraphMemAttribute(device: i32, attribute: u32, value: In<u64>) {
        let mut state = lock()?;
        let memory = &mut state.device(device)?.graph_memory;
        match (attribute, value.get()?) {
            (1 | 3, 0) => memory.reserved[1] = memory.reserved[0],
            _ => return Err(INVALID_VALUE),
        }
        Ok(())
    }
    /// Frees the memory that no graph uses.
    cuDeviceGraphMemTrim 11040 => fn cuDeviceGraphMemTrim(device: i32) {
        let mut state = lock()?;
        crate::graph_memory::trim(&mut state, device)
    }
}
