//! Graphs as far as memory goes.

use std::ffi::{c_char, c_int, c_uint, c_void};

use crate::context;
use crate::driver::{Code, Door, Handle};
use crate::version::version;

entries! {
    /// An empty graph.
    fn cudaGraphCreate(graph: *mut Handle, flags: c_uint) |driver| { forward!(driver.cuGraphCreate(graph, flags)) }

    /// Destroys a graph.
    fn cudaGraphDestroy(graph: Handle) |driver| { forward!(driver.cuGraphDestroy(graph)) }

    /// A copy of a graph.
    fn cudaGraphClone(clone: *mut Handle, graph: Handle) |driver| { forward!(driver.cuGraphClone(clone, graph)) }

    /// An executable form of a graph.
    fn cudaGraphInstantiateWithFlags(exec: *mut Handle, graph: Handle, flags: u64) |driver| {
        forward!(driver.cuGraphInstantiateWithFlags(exec, graph, flags))
    }

    /// Launches a graph on a stream.
    fn cudaGraphLaunch | cudaGraphLaunch_ptsz(exec: Handle, stream: Handle) |driver| { forward!(driver.cuGraphLaunch(exec, stream)) }

    /// Does ahead what the first launch would do.
    fn cudaGraphUpload | cudaGraphUpload_ptsz(exec: Handle, stream: Handle) |driver| { forward!(driver.cuGraphUpload(exec, stream)) }

    /// Destroys an executable graph.
    fn cudaGraphExecDestroy(exec: Handle) |driver| { forward!(driver.cuGraphExecDestroy(exec)) }

    /// A graph's nodes.
    fn cudaGraphGetNodes(graph: Handle, nodes: *mut Handle, count: *mut usize) |driver| {
        forward!(driver.cuGraphGetNodes(graph, nodes, count))
    }

    /// A node's kind.
    fn cudaGraphNodeGetType(node: Handle, kind: *mut c_int) |driver| { forward!(driver.cuGraphNodeGetType(node, kind)) }

    /// A node that allocates; the structure is the driver's.
    fn cudaGraphAddMemAllocNode(node: *mut Handle, graph: Handle, after: *const Handle, count: usize, parameters: *mut c_void) |driver| {
        forward!(driver.cuGraphAddMemAllocNode(node, graph, after, count, parameters))
    }

    /// A node that frees.
    fn cudaGraphAddMemFreeNode(node: *mut Handle, graph: Handle, after: *const Handle, count: usize, pointer: u64) |driver| {
        forward!(driver.cuGraphAddMemFreeNode(node, graph, after, count, pointer))
    }

    /// Gives memory that graphs hold unused back to the driver.
    fn cudaDeviceGraphMemTrim(device: c_int) |driver| { forward!(driver.cuDeviceGraphMemTrim(device)) }

    /// What graphs hold of a device's memory.
    fn cudaDeviceGetGraphMemAttribute(device: c_int, attribute: c_int, value: *mut c_void) |driver| {
        forward!(driver.cuDeviceGetGraphMemAttribute(device, attribute, value))
    }

    /// Resets a high-water mark of that.
    fn cudaDeviceSetGraphMemAttribute(device: c_int, attribute: c_int, value: *mut c_void) |driver| {
        forward!(driver.cuDeviceSetGraphMemAttribute(device, attribute, value))
    }
}

/// An executable form of a graph. CUDA 11 had an error node and a log buffer where CUDA 12 has flags.
///
/// # Safety
/// As the CUDA runtime's function of the same name asks.
#[unsafe(no_mangle)]
unsafe extern "C" fn cudaGraphInstantiate(
    exec: *mut Handle,
    graph: Handle,
    flags: u64,
    _log: *mut c_char,
    _size: usize,
) -> Code {
    let flags = if version() < 12000 { 0 } else { flags };
    crate::error::finish(context::with(Door::Legacy, |driver| {
        forward!(driver.cuGraphInstantiateWithFlags(exec, graph, flags))
    }))
}
