//! Structs and constants of the driver API.

use crate::abi::{HostFn, UserData};

/// `CUmemorytype`: host memory.
pub const MEMORYTYPE_HOST: u32 = 1;
/// `CUmemorytype`: device memory.
pub const MEMORYTYPE_DEVICE: u32 = 2;
/// `CUmemorytype`: an array.
pub const MEMORYTYPE_ARRAY: u32 = 3;
/// `CUmemorytype`: an address of host or device memory.
pub const MEMORYTYPE_UNIFIED: u32 = 4;

/// One side of a two- or three-dimensional copy, part of `CUDA_MEMCPY3D_v2`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Side3D {
    /// Offset in a row, in bytes.
    pub x: usize,
    pub y: usize,
    pub z: usize,
    /// Level of detail, always 0.
    pub lod: usize,
    /// Kind of memory (`CUmemorytype`).
    pub kind: u32,
    /// Address, for host memory.
    pub host: u64,
    /// Address, for device memory.
    pub device: u64,
    /// Handle, if the side is an array.
    pub array: u64,
    /// Reserved; in `CUDA_MEMCPY3D_PEER` the context.
    pub context: u64,
    /// Distance from row to row, in bytes.
    pub pitch: usize,
    /// Number of rows from slice to slice.
    pub height: usize,
}

/// Copy of `CUDA_MEMCPY3D_v2`, and of `CUDA_MEMCPY3D_PEER`, whose layout is the same.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Memcpy3D {
    pub src: Side3D,
    pub dst: Side3D,
    /// Size of each row, in bytes.
    pub width: usize,
    /// Number of rows of a slice.
    pub height: usize,
    /// Number of slices to copy.
    pub depth: usize,
}

/// One side of a `CUDA_MEMCPY2D_v2`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Side2D {
    /// Offset in a row, in bytes.
    pub x: usize,
    pub y: usize,
    /// Kind of memory (`CUmemorytype`).
    pub kind: u32,
    /// Address, for host memory.
    pub host: u64,
    /// Address, for device memory.
    pub device: u64,
    /// Handle, if the side is an array.
    pub array: u64,
    /// Distance from row to row, in bytes.
    pub pitch: usize,
}

/// Copy of rows (`CUDA_MEMCPY2D_v2`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Memcpy2D {
    pub src: Side2D,
    pub dst: Side2D,
    /// Size of each row, in bytes.
    pub width: usize,
    /// Number of rows of the copy.
    pub height: usize,
}

/// Description of an array (`CUDA_ARRAY_DESCRIPTOR_v2`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ArrayDescriptor {
    /// Number of elements of a row.
    pub width: usize,
    /// Number of rows; 0 for one dimension.
    pub height: usize,
    /// Type of a channel (`CUarray_format`).
    pub format: u32,
    /// Number of channels of an element.
    pub channels: u32,
}

/// Description of an array (`CUDA_ARRAY3D_DESCRIPTOR_v2`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Array3DDescriptor {
    /// Number of elements of a row.
    pub width: usize,
    /// Number of rows; 0 for one dimension.
    pub height: usize,
    /// Number of slices; 0 for two dimensions.
    pub depth: usize,
    /// Type of a channel (`CUarray_format`).
    pub format: u32,
    /// Number of channels of an element.
    pub channels: u32,
    /// Bits of `CUDA_ARRAY3D_*`.
    pub flags: u32,
}

/// Configuration of a launch (`CUlaunchConfig`).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct LaunchConfig {
    /// Number of blocks in x, y and z.
    pub grid: [u32; 3],
    /// Number of threads of a block in x, y and z.
    pub block: [u32; 3],
    /// Dynamic shared memory of a block, in bytes.
    pub shared: u32,
    pub stream: u64,
    pub attributes: *const libc::c_void,
    pub attribute_count: u32,
}

/// Parameters of a kernel node (`CUDA_KERNEL_NODE_PARAMS_v1`). `_v2` has two fields more at its
/// end.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct KernelNodeParams {
    pub function: u64,
    /// Number of blocks in x, y and z.
    pub grid: [u32; 3],
    /// Number of threads of a block in x, y and z.
    pub block: [u32; 3],
    /// Dynamic shared memory of a block, in bytes.
    pub shared: u32,
    /// Parameters of the kernel.
    pub params: *const libc::c_void,
    pub extra: *const libc::c_void,
}

/// Parameters of a memset node (`CUDA_MEMSET_NODE_PARAMS_v1`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct MemsetNodeParams {
    /// Address of the first byte.
    pub dst: u64,
    /// Distance from row to row, in bytes.
    pub pitch: usize,
    /// Value written to each element.
    pub value: u32,
    /// Size of an element: 1, 2 or 4 bytes.
    pub element: u32,
    /// Number of elements of a row.
    pub width: usize,
    /// Number of rows of the memset.
    pub height: usize,
}

/// Parameters of a host node (`CUDA_HOST_NODE_PARAMS_v1`).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct HostNodeParams {
    pub function: HostFn,
    /// Argument of the function.
    pub data: UserData,
}

/// Location of memory (`CUmemLocation`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemLocation {
    /// `CUmemLocationType`: 1 for a device.
    pub kind: u32,
    /// Ordinal of a device or number of a NUMA node.
    pub id: i32,
}

/// Properties of a pool (`CUmemPoolProps`).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct MemPoolProps {
    /// Type of allocation (`CUmemAllocationType`).
    pub kind: u32,
    /// Bits of `CUmemAllocationHandleType`.
    pub handles: u32,
    /// Device or host whose memory the pool holds.
    pub location: MemLocation,
    /// Security attributes, used on Windows only.
    pub security: *const libc::c_void,
    /// Limit of the size in bytes; 0 for no limit.
    pub max_size: usize,
    pub usage: u16,
    pub reserved: [u8; 54],
}

/// Parameters of an allocation node (`CUDA_MEM_ALLOC_NODE_PARAMS_v1`).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct MemAllocNodeParams {
    /// Properties of the pool to allocate from.
    pub pool: MemPoolProps,
    /// Descriptors of peer access.
    pub access: *const libc::c_void,
    /// Number of descriptors of peer access.
    pub access_count: usize,
    /// Number of bytes that the caller asks for.
    pub bytes: usize,
    /// Address of the allocation, returned.
    pub address: u64,
}

/// Parameters of a node of any type (`CUgraphNodeParams`), as large as the largest.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NodeParams {
    /// Type of the node (`CUgraphNodeType`).
    pub kind: u32,
    reserved: [u32; 3],
    /// Parameters of a node of that type.
    pub of_kind: [u64; 29],
    reserved2: u64,
}

/// Parameters of an instantiation (`CUDA_GRAPH_INSTANTIATE_PARAMS`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct InstantiateParams {
    pub flags: u64,
    /// Stream on which the graph is uploaded.
    pub upload: u64,
    /// Node that failed, returned.
    pub error_node: u64,
    /// `CUgraphInstantiateResult`, returned.
    pub result: u32,
}

/// Result of an update (`CUgraphExecUpdateResultInfo`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct UpdateInfo {
    /// Value of `CUgraphExecUpdateResult`.
    pub result: u32,
    /// Node that failed, 0 if none.
    pub node: u64,
    /// Other end of the failed edge.
    pub from: u64,
}

/// Data of an edge (`CUgraphEdgeData`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct EdgeData(pub [u8; 8]);

#[cfg(test)]
#[path = "structs_tests.rs"]
mod tests;
