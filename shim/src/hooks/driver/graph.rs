//! Graphs: the graphs that hold memory of a capture, and memory nodes.

use std::ffi::{c_char, c_uint, c_ulonglong, c_void};

use cudarc::driver::sys;
use gpushim_trace::{Class, Kind};

use crate::cuda::functions::real;
use crate::cuda::types::{CUresult, DevicePtr, Handle, SUCCESS};
use crate::hooks::driver::hook::driver_hooks;
use crate::memory::caches::{self, News};
use crate::memory::device_memory::free_bytes;
use crate::memory::{passthrough, threshold};
use crate::record::outside;

/// The driver's `CU_GRAPH_NODE_TYPE_GRAPH`, `..._MEM_ALLOC` and `..._MEM_FREE`.
const CHILD: u32 = sys::CUgraphNodeType::CU_GRAPH_NODE_TYPE_GRAPH as u32;
const MEM_ALLOC: u32 = sys::CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEM_ALLOC as u32;
const MEM_FREE: u32 = sys::CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEM_FREE as u32;

/// Notes that `to` can touch all memory that `from` can.
fn derived(from: Handle, to: Handle) {
    caches::tell(News::GraphDerived(from as u64, to as u64));
}

/// Calls a function that makes a graph of another, which takes device memory.
fn make(made: *mut Handle, graph: Handle, call: impl FnMut() -> CUresult) -> CUresult {
    let result = passthrough::forward(None, call);
    if result == SUCCESS && !made.is_null() {
        // SAFETY: the driver wrote the handle.
        derived(graph, unsafe { *made });
    }
    result
}

/// Makes an executable graph, and records by how many bytes the device's free memory fell.
/// Allocations of other threads meanwhile count, too.
fn instantiate(exec: *mut Handle, graph: Handle, call: impl FnMut() -> CUresult) -> CUresult {
    let before = free_bytes();
    let result = make(exec, graph, call);
    if result == SUCCESS
        && !exec.is_null()
        && let Some((before, after)) = before.zip(free_bytes())
    {
        // SAFETY: not null, and the driver wrote the handle.
        let handle = unsafe { *exec } as u64;
        outside::graph(Kind::GraphMade, handle, before.saturating_sub(after));
    }
    result
}

/// Calls a function that ends a graph or an executable one.
fn destroy(graph: Handle, call: impl FnOnce() -> CUresult) -> CUresult {
    let result = call();
    if result == SUCCESS {
        caches::tell(News::GraphDestroyed(graph as u64));
        threshold::release_owed();
    }
    result
}

/// Calls a function after which `to` contains `from` too.
fn absorb(from: Handle, to: Handle, call: impl FnOnce() -> CUresult) -> CUresult {
    let result = call();
    if result == SUCCESS {
        derived(from, to);
    }
    result
}

/// Evaluates a node that was added by its parameter structure.
///
/// # Safety
/// `parameters` is null or a structure that the driver just accepted.
unsafe fn added(graph: Handle, parameters: *const sys::CUgraphNodeParams) {
    if parameters.is_null() {
        return;
    }
    // SAFETY: the driver read the same fields; the enums are read as the integers that C has there.
    unsafe {
        match (&raw const (*parameters).type_).cast::<u32>().read() {
            CHILD => derived((*parameters).__bindgen_anon_1.graph.graph.cast(), graph),
            MEM_ALLOC => {
                let alloc = &raw const (*parameters).__bindgen_anon_1.alloc;
                let (address, bytes) = ((*alloc).dptr, (*alloc).bytesize);
                passthrough::allocated(Class::GraphNode, address, bytes as u64);
            }
            MEM_FREE => node_freed((*parameters).__bindgen_anon_1.free.dptr),
            _ => {}
        }
    }
}

fn node_freed(address: DevicePtr) {
    let entry = passthrough::forget(address);
    passthrough::freed(address, entry, 0);
}

driver_hooks! {
    /// Makes a graph executable (CUDA 10 and 11).
    fn cuGraphInstantiate(
        exec: *mut Handle, graph: Handle, error: *mut Handle, log: *mut c_char, size: usize,
    ) {
        // SAFETY: the caller's arguments, unchanged; so in every hook of this file.
        instantiate(exec, graph, || unsafe {
            real::cuGraphInstantiate(exec, graph, error, log, size)
        })
    }
    /// Makes a graph executable (CUDA 11).
    fn cuGraphInstantiate_v2(
        exec: *mut Handle, graph: Handle, error: *mut Handle, log: *mut c_char, size: usize,
    ) {
        // SAFETY: as above.
        instantiate(exec, graph, || unsafe {
            real::cuGraphInstantiate_v2(exec, graph, error, log, size)
        })
    }
    /// Makes a graph executable, with flags.
    fn cuGraphInstantiateWithFlags(exec: *mut Handle, graph: Handle, flags: c_ulonglong) {
        // SAFETY: as above.
        instantiate(exec, graph, || unsafe {
            real::cuGraphInstantiateWithFlags(exec, graph, flags)
        })
    }
    /// Makes a graph executable, with parameters.
    fn cuGraphInstantiateWithParams(exec: *mut Handle, graph: Handle, parameters: *mut c_void) {
        // SAFETY: as above.
        instantiate(exec, graph, || unsafe {
            real::cuGraphInstantiateWithParams(exec, graph, parameters)
        })
    }
    /// Makes a graph executable, with parameters; per-thread default stream.
    fn cuGraphInstantiateWithParams_ptsz(
        exec: *mut Handle, graph: Handle, parameters: *mut c_void,
    ) {
        // SAFETY: as above.
        instantiate(exec, graph, || unsafe {
            real::cuGraphInstantiateWithParams_ptsz(exec, graph, parameters)
        })
    }
    /// Makes a copy of a graph.
    fn cuGraphClone(clone: *mut Handle, original: Handle) {
        // SAFETY: as above.
        make(clone, original, || unsafe { real::cuGraphClone(clone, original) })
    }
    /// Adds a graph to a graph as a node.
    fn cuGraphAddChildGraphNode(
        node: *mut Handle, graph: Handle, dependencies: *const Handle, n: usize, child: Handle,
    ) {
        // SAFETY: as above.
        absorb(child, graph, || unsafe {
            real::cuGraphAddChildGraphNode(node, graph, dependencies, n, child)
        })
    }
    /// Replaces a child graph within an executable graph.
    fn cuGraphExecChildGraphNodeSetParams(exec: Handle, node: Handle, child: Handle) {
        // SAFETY: as above.
        absorb(child, exec, || unsafe {
            real::cuGraphExecChildGraphNodeSetParams(exec, node, child)
        })
    }
    /// Updates an executable graph with the parameters of a graph (CUDA 10 and 11).
    fn cuGraphExecUpdate(exec: Handle, graph: Handle, node: *mut Handle, info: *mut c_uint) {
        // SAFETY: as above.
        absorb(graph, exec, || unsafe { real::cuGraphExecUpdate(exec, graph, node, info) })
    }
    /// Updates an executable graph with the parameters of a graph.
    fn cuGraphExecUpdate_v2(exec: Handle, graph: Handle, info: *mut c_void) {
        // SAFETY: as above.
        absorb(graph, exec, || unsafe { real::cuGraphExecUpdate_v2(exec, graph, info) })
    }
    /// Launches a graph: its memory nodes take their memory at the first launch.
    fn cuGraphLaunch(exec: Handle, stream: Handle) {
        // SAFETY: as above.
        passthrough::retry(|| unsafe { real::cuGraphLaunch(exec, stream) })
    }
    /// Launches a graph, per-thread default stream.
    fn cuGraphLaunch_ptsz(exec: Handle, stream: Handle) {
        // SAFETY: as above.
        passthrough::retry(|| unsafe { real::cuGraphLaunch_ptsz(exec, stream) })
    }
    /// Uploads a graph to the device before it runs.
    fn cuGraphUpload(exec: Handle, stream: Handle) {
        // SAFETY: as above.
        passthrough::retry(|| unsafe { real::cuGraphUpload(exec, stream) })
    }
    /// Uploads a graph to the device before it runs, per-thread default stream.
    fn cuGraphUpload_ptsz(exec: Handle, stream: Handle) {
        // SAFETY: as above.
        passthrough::retry(|| unsafe { real::cuGraphUpload_ptsz(exec, stream) })
    }
    /// Destroys a graph, and releases its hold on memory.
    fn cuGraphDestroy(graph: Handle) {
        // SAFETY: as above.
        destroy(graph, || unsafe { real::cuGraphDestroy(graph) })
    }
    /// Destroys an executable graph, and records the memory that was freed.
    fn cuGraphExecDestroy(exec: Handle) {
        let before = free_bytes();
        // SAFETY: as above.
        let result = destroy(exec, || unsafe { real::cuGraphExecDestroy(exec) });
        if result == SUCCESS && let Some((before, after)) = before.zip(free_bytes()) {
            outside::graph(Kind::GraphGone, exec as u64, after.saturating_sub(before));
        }
        result
    }
    /// Adds a node that allocates when the graph runs.
    fn cuGraphAddMemAllocNode(
        node: *mut Handle, graph: Handle, dependencies: *const Handle, n: usize,
        parameters: *mut sys::CUDA_MEM_ALLOC_NODE_PARAMS,
    ) {
        // SAFETY: as above.
        let result = passthrough::forward(None, || unsafe {
            real::cuGraphAddMemAllocNode(node, graph, dependencies, n, parameters)
        });
        if result == SUCCESS && !parameters.is_null() {
            // SAFETY: the driver read the size and wrote the address.
            let (address, bytes) = unsafe { ((*parameters).dptr, (*parameters).bytesize) };
            passthrough::allocated(Class::GraphNode, address, bytes as u64);
        }
        result
    }
    /// Adds a node that frees when the graph runs.
    fn cuGraphAddMemFreeNode(
        node: *mut Handle, graph: Handle, dependencies: *const Handle, n: usize,
        address: DevicePtr,
    ) {
        // SAFETY: as above.
        let result = unsafe { real::cuGraphAddMemFreeNode(node, graph, dependencies, n, address) };
        if result == SUCCESS {
            node_freed(address);
        }
        result
    }
    /// Adds a node of any type.
    fn cuGraphAddNode(
        node: *mut Handle, graph: Handle, dependencies: *const Handle, n: usize,
        parameters: *mut sys::CUgraphNodeParams,
    ) {
        // SAFETY: as above.
        let result = passthrough::forward(None, || unsafe {
            real::cuGraphAddNode(node, graph, dependencies, n, parameters)
        });
        if result == SUCCESS {
            // SAFETY: the driver accepted the parameters.
            unsafe { added(graph, parameters) };
        }
        result
    }
    /// Adds a node of any type, with edge data.
    fn cuGraphAddNode_v2(
        node: *mut Handle, graph: Handle, dependencies: *const Handle, data: *const c_void,
        n: usize, parameters: *mut sys::CUgraphNodeParams,
    ) {
        // SAFETY: as above.
        let result = passthrough::forward(None, || unsafe {
            real::cuGraphAddNode_v2(node, graph, dependencies, data, n, parameters)
        });
        if result == SUCCESS {
            // SAFETY: the driver accepted the parameters.
            unsafe { added(graph, parameters) };
        }
        result
    }
}
