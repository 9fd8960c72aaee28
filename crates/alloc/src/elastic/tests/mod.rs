//! Tests of elastic segments under an allocator that acts like PyTorch's, on the simulated device.

mod allocator;
mod machine;
mod mutations;
mod program;
mod random;
mod units;
