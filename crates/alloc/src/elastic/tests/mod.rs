//! Elastic segments under an allocator that does as PyTorch's, on the simulated device.

mod allocator;
mod machine;
mod mutations;
mod program;
mod random;
mod units;
