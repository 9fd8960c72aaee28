//! Facts about PyTorch, which the recorder, the readers of recordings and the replay rely on.
//!
//! The four functions that announce tensors are named in `shim/src/hooks/torch.rs`: their names are
//! parts of attributes, which must be literals. Functions of PyTorch in stacks are in the table of
//! functions (`crates/recording/src/symbols/origin/table.rs`), with those of other libraries.

pub mod allocator;
pub mod device;
pub mod stream;
