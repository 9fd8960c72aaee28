//! PyTorch's devices (`c10/core/Device.h`, `c10/core/DeviceType.h`).

/// PyTorch's `c10::Device`: a type and an index, a byte each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Device {
    /// PyTorch's `c10::DeviceType`.
    pub kind: i8,
    /// Ordinal of the device; −1 for the current one.
    pub index: i8,
}

/// PyTorch's `c10::DeviceType::CUDA`.
pub const CUDA: i8 = 1;
