//! Sizes of PyTorch's caching allocator (`c10/core/AllocatorConfig.h`, in earlier versions
//! `c10/cuda/CUDACachingAllocator.cpp`). The newest versions have an option for the size of a
//! segment for large requests; [`LARGE_BUFFER`] is its default.

/// `kMinBlockSize`: unit of the sizes of blocks, bytes.
pub const BLOCK: u64 = 512;
/// `kSmallSize`: most bytes of a small request.
pub const SMALL: u64 = 1 << 20;
/// `kSmallBuffer`: bytes of a segment for small blocks.
pub const SMALL_BUFFER: u64 = 2 << 20;
/// `kLargeBuffer`: bytes of a segment for large requests below [`MIN_LARGE`]. Every other segment
/// for large requests is as large as its request.
pub const LARGE_BUFFER: u64 = 20 << 20;
/// `kMinLargeAlloc`: least bytes of a request with a segment of its own size.
pub const MIN_LARGE: u64 = 10 << 20;
/// `kRoundLarge`: unit of larger segments, bytes.
pub const ROUND_LARGE: u64 = 2 << 20;

/// Returns the bytes of the block for a request (`round_size`), without options that round
/// further. A request so large that this overflows stays as it is.
///
/// ```
/// use gpushim_torch::allocator::block;
///
/// assert_eq!((block(0), block(512), block(513)), (512, 512, 1024));
/// ```
#[inline]
pub fn block(bytes: u64) -> u64 {
    multiple(bytes, BLOCK)
}

/// Returns the bytes of the segment that is allocated for a block (`get_allocation_size`).
///
/// ```
/// use gpushim_torch::allocator::segment;
///
/// assert_eq!(segment(512), 2 << 20);
/// assert_eq!(segment((1 << 20) + 512), 20 << 20);
/// assert_eq!(segment(10 << 20), 10 << 20);
/// assert_eq!(segment((10 << 20) + 512), 12 << 20);
/// ```
#[inline]
pub fn segment(block: u64) -> u64 {
    if block <= SMALL {
        SMALL_BUFFER
    } else if block < MIN_LARGE {
        LARGE_BUFFER
    } else {
        multiple(block, ROUND_LARGE)
    }
}

fn multiple(bytes: u64, of: u64) -> u64 {
    bytes.max(1).checked_next_multiple_of(of).unwrap_or(bytes)
}
