//! Test of the layouts against bindings generated from the real header.

use super::*;
use cudarc::driver::sys;
use std::mem::{align_of, offset_of, size_of};

macro_rules! same_layout {
    ($ours:ty, $theirs:ty; $($mine:ident = $field:ident),*) => {
        assert_eq!(size_of::<$ours>(), size_of::<$theirs>(), stringify!($ours));
        assert_eq!(align_of::<$ours>(), align_of::<$theirs>(), stringify!($ours));
        $(assert_eq!(offset_of!($ours, $mine), offset_of!($theirs, $field), stringify!($mine));)*
    };
}

#[test]
fn layouts() {
    same_layout!(Memcpy2D, sys::CUDA_MEMCPY2D; src = srcXInBytes, dst = dstXInBytes, width = WidthInBytes, height = Height);
    assert_eq!(
        offset_of!(Memcpy2D, src.pitch),
        offset_of!(sys::CUDA_MEMCPY2D, srcPitch)
    );
    assert_eq!(
        offset_of!(Memcpy2D, dst.device),
        offset_of!(sys::CUDA_MEMCPY2D, dstDevice)
    );
    same_layout!(Memcpy3D, sys::CUDA_MEMCPY3D; src = srcXInBytes, dst = dstXInBytes, width = WidthInBytes, depth = Depth);
    assert_eq!(
        offset_of!(Memcpy3D, src.height),
        offset_of!(sys::CUDA_MEMCPY3D, srcHeight)
    );
    assert_eq!(
        offset_of!(Memcpy3D, dst.array),
        offset_of!(sys::CUDA_MEMCPY3D, dstArray)
    );
    same_layout!(Memcpy3D, sys::CUDA_MEMCPY3D_PEER; src = srcXInBytes, dst = dstXInBytes, width = WidthInBytes);
    assert_eq!(
        offset_of!(Memcpy3D, src.context),
        offset_of!(sys::CUDA_MEMCPY3D_PEER, srcContext)
    );
    same_layout!(ArrayDescriptor, sys::CUDA_ARRAY_DESCRIPTOR; format = Format, channels = NumChannels);
    same_layout!(Array3DDescriptor, sys::CUDA_ARRAY3D_DESCRIPTOR; depth = Depth, format = Format, flags = Flags);
    same_layout!(LaunchConfig, sys::CUlaunchConfig; grid = gridDimX, stream = hStream, attribute_count = numAttrs);
    same_layout!(KernelNodeParams, sys::CUDA_KERNEL_NODE_PARAMS_v1; function = func, block = blockDimX, params = kernelParams);
    same_layout!(MemsetNodeParams, sys::CUDA_MEMSET_NODE_PARAMS; dst = dst, pitch = pitch, element = elementSize, height = height);
    same_layout!(HostNodeParams, sys::CUDA_HOST_NODE_PARAMS; function = fn_, data = userData);
    same_layout!(MemLocation, sys::CUmemLocation; kind = type_, id = id);
    same_layout!(MemPoolProps, sys::CUmemPoolProps; location = location, max_size = maxSize, usage = usage);
    same_layout!(MemAllocNodeParams, sys::CUDA_MEM_ALLOC_NODE_PARAMS; bytes = bytesize, address = dptr);
    same_layout!(NodeParams, sys::CUgraphNodeParams; kind = type_);
    same_layout!(InstantiateParams, sys::CUDA_GRAPH_INSTANTIATE_PARAMS; upload = hUploadStream, result = result_out);
    same_layout!(UpdateInfo, sys::CUgraphExecUpdateResultInfo; result = result, node = errorNode);
    same_layout!(EdgeData, sys::CUgraphEdgeData;);
}
