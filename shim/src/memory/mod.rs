//! Memory: the pools of this process, and what the driver hands out itself.

pub mod allocator;
pub mod budget;
pub mod device;
pub mod device_memory;
pub mod drain;
pub mod growth;
pub mod mappings;
pub mod memory_info;
pub mod paged;
pub mod passthrough;
pub mod peer_access;
pub mod plans;
pub mod pool_peers;
pub mod pools;
pub mod shortage;
pub mod stream_driver;
