//! Addition of nodes of each kind to a graph.

use crate::abi::{
    HostNodeParams, In, KernelNodeParams, MemAllocNodeParams, Memcpy3D, MemsetNodeParams,
    NodeParams, Out,
};
use crate::codes::{INVALID_VALUE, NOT_SUPPORTED, Outcome};
use crate::env::settings;
use crate::state::{State, lock};
use crate::work::{Call, Fill, Work};

/// `CU_MEM_LOCATION_TYPE_DEVICE`.
const LOCATION_DEVICE: u32 = 1;

fn add(
    node: Out<u64>,
    graph: u64,
    after: In<u64>,
    count: usize,
    work: impl FnOnce(&mut State) -> Outcome<Work>,
) -> Outcome {
    node.required()?;
    let after = after.list(count)?;
    let mut state = lock()?;
    let work = work(&mut state)?;
    node.put(crate::graph::add(&mut state, graph, work, after)?)
}

fn kernel(state: &State, params: In<KernelNodeParams>) -> Outcome<Work> {
    let params = params.get()?;
    crate::function::launchable(state, params.function)?;
    Ok(Work::Kernel {
        touches: Vec::new(),
        duration: settings().latency.of("launch"),
    })
}

fn fill(params: MemsetNodeParams) -> Outcome<Work> {
    if !matches!(params.element, 1 | 2 | 4) {
        return Err(INVALID_VALUE);
    }
    Ok(Work::Fill(Fill {
        address: params.dst,
        pitch: params.pitch as u64,
        element: params.element.into(),
        value: params.value,
        width: params.width as u64,
        height: params.height.max(1) as u64,
    }))
}

fn set(node: u64, kind: u32, work: impl FnOnce(&mut State) -> Outcome<Work>) -> Outcome {
    let mut state = lock()?;
    if state.nodes.get(node)?.kind() != kind {
        return Err(INVALID_VALUE);
    }
    let work = work(&mut state)?;
    state.nodes.get_mut(node)?.work = work;
    Ok(())
}

fn allocation(
    node: Out<u64>,
    graph: u64,
    after: In<u64>,
    count: usize,
    params: Out<MemAllocNodeParams>,
) -> Outcome {
    let wanted = params.get()?;
    let location = wanted.pool.location;
    if location.kind != LOCATION_DEVICE || wanted.bytes == 0 {
        return Err(INVALID_VALUE);
    }
    let mut address = 0;
    add(node, graph, after, count, |state| {
        state.graphs.get(graph)?;
        let context = state.current().unwrap_or(0);
        let bytes = crate::graph_memory::reserve(state, location.id, wanted.bytes as u64, context)?;
        address = bytes.start;
        Ok(Work::Alloc(bytes))
    })?;
    params.put(MemAllocNodeParams { address, ..wanted })
}

fn free(node: Out<u64>, graph: u64, after: In<u64>, count: usize, address: u64) -> Outcome {
    add(node, graph, after, count, |state| {
        let found = state
            .memory
            .get(address)
            .filter(|found| found.kind == crate::memory::Kind::Graph);
        let size = found.ok_or(INVALID_VALUE)?.size;
        let frees = |node: &u64| {
            let work = state.nodes.get(*node).map(|node| &node.work);
            matches!(work, Ok(Work::Free(bytes)) if bytes.start == address)
        };
        if state.graphs.get(graph)?.nodes.iter().any(frees) {
            return Err(INVALID_VALUE);
        }
        Ok(Work::Free(address..address + size))
    })
}

/// Adds a node of the type in its parameters: a memory node or an empty one.
fn any(
    node: Out<u64>,
    graph: u64,
    after: In<u64>,
    count: usize,
    params: Out<NodeParams>,
) -> Outcome {
    // CU_GRAPH_NODE_TYPE_EMPTY, ..._MEM_ALLOC and ..._MEM_FREE.
    const EMPTY: u32 = 5;
    const ALLOC: u32 = 10;
    const FREE: u32 = 11;
    let mut wanted = params.get()?;
    let of_kind = Out::from(&mut wanted.of_kind);
    match wanted.kind {
        EMPTY => add(node, graph, after, count, |_| Ok(Work::Empty)),
        ALLOC => {
            allocation(node, graph, after, count, of_kind.cast())?;
            params.put(wanted)
        }
        FREE => free(node, graph, after, count, wanted.of_kind[0]),
        _ => Err(NOT_SUPPORTED),
    }
}

api! {
    /// Adds a node of the type that its parameters name.
    cuGraphAddNode 12020 => fn cuGraphAddNode(node: Out<u64>, graph: u64, after: In<u64>, count: usize, params: Out<NodeParams>) {
        any(node, graph, after, count, params)
    }
    /// Adds a node of the type that its parameters name, with data of its edges.
    cuGraphAddNode 12030 => fn cuGraphAddNode_v2(node: Out<u64>, graph: u64, after: In<u64>, _edges: In<u64>, count: usize, params: Out<NodeParams>) {
        any(node, graph, after, count, params)
    }
    /// Returns the `CUgraphNodeType` of a node.
    cuGraphNodeGetType 10000 => fn cuGraphNodeGetType(node: u64, kind: Out<u32>) {
        kind.put(lock()?.nodes.get(node)?.kind())
    }
    /// Removes a node from its graph.
    cuGraphDestroyNode 10000 => fn cuGraphDestroyNode(node: u64) {
        let mut state = lock()?;
        let graph = state.nodes.get(node)?.graph;
        if crate::graph::has_memory_nodes(&state, graph)? {
            return Err(NOT_SUPPORTED);
        }
        let nodes = &mut state.graphs.get_mut(graph)?.nodes;
        nodes.retain(|other| *other != node);
        for other in nodes.clone() {
            state.nodes.get_mut(other)?.after.retain(|before| *before != node);
        }
        match state.nodes.remove(node)?.work {
            Work::Child(child) => crate::graph::destroy(&mut state, child),
            _ => Ok(()),
        }
    }
    cuGraphAddKernelNode 10000 => fn cuGraphAddKernelNode(node: Out<u64>, graph: u64, after: In<u64>, count: usize, params: In<KernelNodeParams>) {
        add(node, graph, after, count, |state| kernel(state, params))
    }
    cuGraphAddKernelNode 12000 => fn cuGraphAddKernelNode_v2(node: Out<u64>, graph: u64, after: In<u64>, count: usize, params: In<KernelNodeParams>) {
        add(node, graph, after, count, |state| kernel(state, params))
    }
    cuGraphAddMemcpyNode 10000 => fn cuGraphAddMemcpyNode(node: Out<u64>, graph: u64, after: In<u64>, count: usize, copy: In<Memcpy3D>, _context: u64) {
        add(node, graph, after, count, |state| {
            Ok(Work::Copy(crate::copy3d::resolve(state, &copy.get()?)?))
        })
    }
    /// Replaces the copy of a node.
    cuGraphMemcpyNodeSetParams 10000 => fn cuGraphMemcpyNodeSetParams(node: u64, copy: In<Memcpy3D>) {
        set(node, 1, |state| Ok(Work::Copy(crate::copy3d::resolve(state, &copy.get()?)?)))
    }
    cuGraphAddMemsetNode 10000 => fn cuGraphAddMemsetNode(node: Out<u64>, graph: u64, after: In<u64>, count: usize, params: In<MemsetNodeParams>, _context: u64) {
        add(node, graph, after, count, |_| fill(params.get()?))
    }
    /// Replaces the memset of a node.
    cuGraphMemsetNodeSetParams 10000 => fn cuGraphMemsetNodeSetParams(node: u64, params: In<MemsetNodeParams>) {
        set(node, 2, |_| fill(params.get()?))
    }
    /// Adds a node that calls a host function.
    cuGraphAddHostNode 10000 => fn cuGraphAddHostNode(node: Out<u64>, graph: u64, after: In<u64>, count: usize, params: In<HostNodeParams>) {
        add(node, graph, after, count, |_| {
            let HostNodeParams { function, data } = params.get()?;
            function.ok_or(INVALID_VALUE)?;
            Ok(Work::Host(Call { function, data }))
        })
    }
    /// Adds a node that runs a copy of another graph.
    cuGraphAddChildGraphNode 10000 => fn cuGraphAddChildGraphNode(node: Out<u64>, graph: u64, after: In<u64>, count: usize, child: u64) {
        add(node, graph, after, count, |state| {
            if crate::graph::has_memory_nodes(state, child)? {
                return Err(NOT_SUPPORTED);
            }
            if child == graph {
                return Err(INVALID_VALUE);
            }
            Ok(Work::Child(child))
        })
    }
    /// Returns the graph of a child node.
    cuGraphChildGraphNodeGetGraph 10000 => fn cuGraphChildGraphNodeGetGraph(node: u64, graph: Out<u64>) {
        match lock()?.nodes.get(node)?.work {
            Work::Child(child) => graph.put(child),
            _ => Err(INVALID_VALUE),
        }
    }
    /// Adds a node without work, which ties other nodes together.
    cuGraphAddEmptyNode 10000 => fn cuGraphAddEmptyNode(node: Out<u64>, graph: u64, after: In<u64>, count: usize) {
        add(node, graph, after, count, |_| Ok(Work::Empty))
    }
    /// Adds a node that records an event.
    cuGraphAddEventRecordNode 11010 => fn cuGraphAddEventRecordNode(node: Out<u64>, graph: u64, after: In<u64>, count: usize, event: u64) {
        add(node, graph, after, count, |state| state.events.get(event).map(|_| Work::Record(event)))
    }
    /// Adds a node that waits for an event.
    cuGraphAddEventWaitNode 11010 => fn cuGraphAddEventWaitNode(node: Out<u64>, graph: u64, after: In<u64>, count: usize, event: u64) {
        add(node, graph, after, count, |state| state.events.get(event).map(|_| Work::Wait(event)))
    }
    /// Adds a node that allocates memory. Its address is known at once.
    cuGraphAddMemAllocNode 11040 => fn cuGraphAddMemAllocNode(node: Out<u64>, graph: u64, after: In<u64>, count: usize, params: Out<MemAllocNodeParams>) {
        allocation(node, graph, after, count, params)
    }
    /// Returns the parameters of an allocation node.
    cuGraphMemAllocNodeGetParams 11040 => fn cuGraphMemAllocNodeGetParams(node: u64, params: Out<MemAllocNodeParams>) {
        let state = lock()?;
        let Work::Alloc(bytes) = &state.nodes.get(node)?.work else {
            return Err(INVALID_VALUE);
        };
        let device = state.memory.get(bytes.start).map_or(0, |found| found.device);
        params.put(crate::graph_memory::params(device, bytes.clone()))
    }
    /// Adds a node that frees memory of an allocation node of this or another graph.
    cuGraphAddMemFreeNode 11040 => fn cuGraphAddMemFreeNode(node: Out<u64>, graph: u64, after: In<u64>, count: usize, address: u64) {
        free(node, graph, after, count, address)
    }
    /// Returns the address that a node frees.
    cuGraphMemFreeNodeGetParams 11040 => fn cuGraphMemFreeNodeGetParams(node: u64, address: Out<u64>) {
        match &lock()?.nodes.get(node)?.work {
            Work::Free(bytes) => address.put(bytes.start),
            _ => Err(INVALID_VALUE),
        }
    }
}
