//! Memory: the pools of this process, and the memory that the driver serves itself.
//!
//! * `registry` has the pools, and `caches` every cache.
//! * `cuda_malloc` serves requests of `cudaMalloc` from the pools, in pages or in driver allocations
//!   (`context_pools`).
//! * `stream_ordered` serves the requests of streams.
//! * `ipc_export` and `ipc_import` share pages with other processes, and `peer_processes` asks
//!   these for memory.
//! * `elastic` serves the segments of PyTorch's own allocator.
//! * `driver` is the driver as the pools see it.
//! * `passthrough` forwards requests that no pool serves, and `mappings` knows the program's own
//!   mapped memory.

pub mod activity;
pub mod caches;
pub mod capture_notices;
pub mod context_drain;
pub mod context_pools;
pub mod context_work;
pub mod cuda_malloc;
pub mod device_memory;
pub mod driver;
pub mod driver_pools;
pub mod elastic;
pub mod elastic_ranges;
pub mod elastic_sites;
pub mod ipc_answers;
pub mod ipc_export;
pub mod ipc_import;
pub mod ipc_server;
pub mod ledger;
pub mod limit;
pub mod make_room;
pub mod mappings;
pub mod memory_info;
pub mod miss;
pub mod owner;
pub mod passthrough;
pub mod peer_access;
pub mod peer_processes;
pub mod peer_work;
pub mod physical;
pub mod policy;
pub mod pool_life;
pub mod registry;
pub mod reservations;
pub mod shared_parts;
pub mod shortage;
pub mod stream_ordered;
pub mod stream_targets;
pub mod threshold;
