//! Messages between processes with gpushim, without CUDA: about memory in pages for importers, and
//! about memory that a process does not use.
//!
//! Memory in pages has no IPC handle of the driver. Its exporter gives a [`Token`] away instead,
//! which fits into the 64 bytes of a handle, and serves a socket. An importer with the token
//! connects and shows its secret. It receives a descriptor of each piece of memory that the block
//! lies on.
//!
//! A process whose device has no memory left asks all other processes of its user to free unused
//! memory ([`PeerProcesses`]).
//!
//! Two things protect the memory:
//! - The peer process at either end must be of the same user, by the kernel's answer
//!   (`SO_PEERCRED`).
//! - The token has a random secret that is nowhere else.
//!
//! The socket has a random name. It is an abstract name in the network namespace, and also a file
//! in a folder that only this user may enter. So containers with different network namespaces need
//! only that folder in common.

mod exports;
mod folder;
mod link;
mod message;
mod peer_processes;
mod server;
mod socket;
mod token;

pub use exports::{Block, Exports};
pub use link::Link;
pub use message::{BATCH, Piece, Refused, Reply, Request, Room};
pub use peer_processes::PeerProcesses;
pub use server::{Server, Service};
pub use token::{Random, Token};
