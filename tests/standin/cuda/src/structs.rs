//! Structs and constants of the driver API.

use crate::abi::{HostFn, UserData};

/// `CUmemorytype`: host memory.
pub const MEMORYTYPE_HOST: u32 = 1;
/// `CUmemorytype`: device memory.
pub const MEMORYTYPE_DEVICE: u32 = 2;
/// `CUmemorytype`: an array.
pub const MEMORYTYPE_ARRAY: u32 = 3;
/// `CUmemorytype`: an address of either kind.
pub const MEMORYTYPE_UNIFIED: u32 = 4;

/// One side of a two- or three-dimensional copy, of `CUDA_MEMCPY3D_v2`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Side3D {
    /// Offset in a row, in bytes.
    pub x: usize,
    /// Row.
    pub y: usize,
    /// Slice.
    pub z: usize,
    /// Level of detail, always 0.
    pub lod: usize,
    /// `CUmemorytype`.
    pub kind: u32,
    /// Address, if on the host.
    pub host: u64,
    /// Address, if on the device.
    pub device: u64,
    /// Handle, if an array.
    pub array: u64,
    /// Reserved, or the context in `CUDA_MEMCPY3D_PEER`.
    pub context: u64,
    /// Bytes from row to row.
    pub pitch: usize,
    /// Rows from slice to slice.
    pub height: usize,
}

/// `CUDA_MEMCPY3D_v2`, and `CUDA_MEMCPY3D_PEER` whose layout is the same.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Memcpy3D {
    /// From.
    pub src: Side3D,
    /// To.
    pub dst: Side3D,
    /// Bytes of a row.
    pub width: usize,
    /// Rows of a slice.
    pub height: usize,
    /// Slices.
    pub depth: usize,
}

/// One side of a `CUDA_MEMCPY2D_v2`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Side2D {
    /// Offset in a row, in bytes.
    pub x: usize,
    /// Row.
    pub y: usize,
    /// `CUmemorytype`.
    pub kind: u32,
    /// Address, if on the host.
    pub host: u64,
    /// Address, if on the device.
    pub device: u64,
    /// Handle, if an array.
    pub array: u64,
    /// Bytes from row to row.
    pub pitch: usize,
}

/// `CUDA_MEMCPY2D_v2`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Memcpy2D {
    /// From.
    pub src: Side2D,
    /// To.
    pub dst: Side2D,
    /// Bytes of a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
}

/// `CUDA_ARRAY_DESCRIPTOR_v2`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ArrayDescriptor {
    /// Elements of a row.
    pub width: usize,
    /// Rows; 0 for one dimension.
    pub height: usize,
    /// `CUarray_format`.
    pub format: u32,
    /// Channels of an element.
    pub channels: u32,
}

/// `CUDA_ARRAY3D_DESCRIPTOR_v2`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Array3DDescriptor {
    /// Elements of a row.
    pub width: usize,
    /// Rows; 0 for one dimension.
    pub height: usize,
    /// Slices; 0 for two dimensions.
    pub depth: usize,
    /// `CUarray_format`.
    pub format: u32,
    /// Channels of an element.
    pub channels: u32,
    /// `CUDA_ARRAY3D_*`.
    pub flags: u32,
}

/// `CUlaunchConfig`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct LaunchConfig {
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Dynamic shared memory of a block, in bytes.
    pub shared: u32,
    /// Stream.
    pub stream: u64,
    /// Attributes.
    pub attributes: *const libc::c_void,
    /// Number of attributes.
    pub attribute_count: u32,
}

/// `CUDA_KERNEL_NODE_PARAMS_v2`; `_v1` is the same less its last two fields.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct KernelNodeParams {
    /// Function.
    pub function: u64,
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Dynamic shared memory of a block, in bytes.
    pub shared: u32,
    /// Parameters.
    pub params: *const libc::c_void,
    /// Extra options.
    pub extra: *const libc::c_void,
}

/// `CUDA_MEMSET_NODE_PARAMS_v1`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct MemsetNodeParams {
    /// Address.
    pub dst: u64,
    /// Bytes from row to row.
    pub pitch: usize,
    /// Value of each element.
    pub value: u32,
    /// Bytes of an element.
    pub element: u32,
    /// Elements of a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
}

/// `CUDA_HOST_NODE_PARAMS_v1`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct HostNodeParams {
    /// Function.
    pub function: HostFn,
    /// Its argument.
    pub data: UserData,
}

/// `CUmemLocation`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemLocation {
    /// `CUmemLocationType`: 1 for a device.
    pub kind: u32,
    /// Device ordinal or NUMA node.
    pub id: i32,
}

/// `CUmemPoolProps`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct MemPoolProps {
    /// `CUmemAllocationType`.
    pub kind: u32,
    /// `CUmemAllocationHandleType`.
    pub handles: u32,
    /// Where.
    pub location: MemLocation,
    /// Windows only.
    pub security: *const libc::c_void,
    /// Largest size in bytes, 0 for no limit.
    pub max_size: usize,
    /// Usage bits.
    pub usage: u16,
    /// Reserved.
    pub reserved: [u8; 54],
}

/// `CUDA_MEM_ALLOC_NODE_PARAMS_v1`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct MemAllocNodeParams {
    /// Properties of the pool.
    pub pool: MemPoolProps,
    /// Peer access descriptors.
    pub access: *const libc::c_void,
    /// Their number.
    pub access_count: usize,
    /// Requested bytes.
    pub bytes: usize,
    /// The address, given back.
    pub address: u64,
}

/// `CUgraphNodeParams`: what a node of a type needs, in a place as large as the largest.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NodeParams {
    /// Type of the node (`CUgraphNodeType`).
    pub kind: u32,
    reserved: [u32; 3],
    /// Parameters of that type.
    pub of_kind: [u64; 29],
    reserved2: u64,
}

/// `CUDA_GRAPH_INSTANTIATE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct InstantiateParams {
    /// Flags.
    pub flags: u64,
    /// Stream of the upload.
    pub upload: u64,
    /// Node that failed, given back.
    pub error_node: u64,
    /// `CUgraphInstantiateResult`, given back.
    pub result: u32,
}

/// `CUgraphExecUpdateResultInfo`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct UpdateInfo {
    /// `CUgraphExecUpdateResult`.
    pub result: u32,
    /// Node that failed.
    pub node: u64,
    /// The other end of the failed edge.
    pub from: u64,
}

/// `CUgraphEdgeData`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct EdgeData(pub [u8; 8]);

#[cfg(test)]
#[path = "structs_tests.rs"]
mod tests;
