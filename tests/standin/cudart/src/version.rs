//! Version of the CUDA runtime that this one imitates.

use std::ffi::c_int;

#[cfg(not(test))]
unsafe extern "C" {
    /// Constant linked in by `tests/standin/build-cudart`: 11080, 12080, 13000 ...
    static standin_cudart_version: c_int;
}

/// Returns the version as `cudaRuntimeGetVersion` gives it: 1000 × major + 10 × minor.
pub fn version() -> c_int {
    #[cfg(not(test))]
    // SAFETY: a constant of the same type, defined at link time.
    return unsafe { standin_cudart_version };
    #[cfg(test)]
    return 13000;
}

/// True if the primary context becomes current only at the next call after `cudaSetDevice`, as
/// before CUDA 12.
pub fn lazy() -> bool {
    version() < 12000
}
