//! Graphs, as far as they concern memory.

use std::ffi::{c_char, c_int, c_uint, c_void};

use crate::context;
use crate::driver::{Code, Door, Handle};
use crate::version::version;

entries! {
    fn cudaGraphCreate(graph: *mut Handle, flags: c_uint) |driver| { forward!(driver.cuGraphCreate(graph, flags)) }

    fn cudaGraphDestroy(graph: Handle) |driver| { forward!(driver.cuGraphDestroy(graph)) }

    fn cudaGraphClone(clone: *mut Handle, graph: Handle) |driver| { forward!(driver.cuGraphClone(clone, graph)) }

    /// Makes an executable graph from a graph.
    fn cudaGraphInstantiateWithFlags(exec: *mut Handle, graph: Handle, flags: u64) |driver| {
        forward!(driver.cuGraphInstantiateWithFlags(exec, graph, flags))
    }

    /// Launches a graph on a stream.
    fn cudaGraphLaunch | cudaGraphLaunch_ptsz(exec: Handle, stream: Handle) |driver| { forward!(driver.cuGraphLaunch(exec, stream)) }

    /// Prepares the first launch of an executable graph.
    fn cudaGraphUpload | cudaGraphUpload_ptsz(exec: Handle, stream: Handle) |driver| { forward!(driver.cuGraphUpload(exec, stream)) }

    /// Destroys an executable graph.
    fn cudaGraphExecDestroy(exec: Handle) |driver| { forward!(driver.cuGraphExecDestroy(exec)) }

    /// Returns the nodes of a graph.
    fn cudaGraphGetNodes(graph: Handle, nodes: *mut Handle, count: *mut usize) |driver| {
        forward!(driver.cuGraphGetNodes(graph, nodes, count))
    }

    /// Returns the type of a node.
    fn cudaGraphNodeGetType(node: Handle, kind: *mut c_int) |driver| { forward!(driver.cuGraphNodeGetType(node, kind)) }

    /// Adds a node that allocates memory; the structure is the driver's.
    fn cudaGraphAddMemAllocNode(node: *mut Handle, graph: Handle, after: *const Handle, count: usize, parameters: *mut c_void) |driver| {
        forward!(driver.cuGraphAddMemAllocNode(node, graph, after, count, parameters))
    }

    /// Adds a node that frees memory.
    fn cudaGraphAddMemFreeNode(node: *mut Handle, graph: Handle, after: *const Handle, count: usize, pointer: u64) |driver| {
        forward!(driver.cuGraphAddMemFreeNode(node, graph, after, count, pointer))
    }

    /// Frees memory that graphs of the device hold unused.
    fn cudaDeviceGraphMemTrim(device: c_int) |driver| { forward!(driver.cuDeviceGraphMemTrim(device)) }

    /// Returns the bytes of a device's memory that graphs hold.
    fn cudaDeviceGetGraphMemAttribute(device: c_int, attribute: c_int, value: *mut c_void) |driver| {
        forward!(driver.cuDeviceGetGraphMemAttribute(device, attribute, value))
    }

    /// Resets a high-water mark of the bytes that graphs hold.
    fn cudaDeviceSetGraphMemAttribute(device: c_int, attribute: c_int, value: *mut c_void) |driver| {
        forward!(driver.cuDeviceSetGraphMemAttribute(device, attribute, value))
    }
}

/// Makes an executable graph from a graph. CUDA 11 had an error node and a log buffer in place of
/// the flags of CUDA 12.
///
/// # Safety
/// The caller meets the requirements of the CUDA runtime's function of the same name.
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
