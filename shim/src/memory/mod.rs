//! Memory: the pools of this process, and what the driver serves itself.
//!
//! `registry` has the pools, and `caches` every cache. `allocator` and `stream_ordered` serve requests from
//! them, `paged` those of `cudaMalloc` under the policy `vmm`. `ipc_export` and `ipc_import` share those
//! with other processes, and `peer_processes` asks these for memory. `elastic` serves the segments of
//! PyTorch's own allocator. `plain_driver` and `stream_driver` are the driver as the pools see it. What
//! no pool serves goes through `passthrough`.

pub mod allocator;
pub mod budget;
pub mod caches;
pub mod capture_notices;
pub mod device_memory;
pub mod drain;
pub mod driver_pools;
pub mod elastic;
pub mod elastic_pages;
pub mod elastic_sites;
pub mod growth;
pub mod ipc_answers;
pub mod ipc_export;
pub mod ipc_import;
pub mod ipc_server;
pub mod mappings;
pub mod memory_info;
pub mod owner;
pub mod paged;
pub mod passthrough;
pub mod peer_access;
pub mod peer_processes;
pub mod physical;
pub mod plain_driver;
pub mod policy;
pub mod pool_peers;
pub mod pools;
pub mod registry;
pub mod reservations;
pub mod room;
pub mod shortage;
pub mod stream_driver;
pub mod stream_ordered;
pub mod surplus;
pub mod targets;
