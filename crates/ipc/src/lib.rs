//! What processes with gpushim say to each other, without CUDA: memory in pages for importers, and requests for memory that
//! another process does not use.
//!
//! Memory in pages has no IPC handle of the driver's. Its exporter gives a [`Token`] away instead, which fits into the
//! 64 bytes of a handle, and serves a socket. Whoever has the token connects, shows its secret, and receives a
//! descriptor of each piece of memory that the block lies on.
//!
//! A process whose device has no memory left asks all others of its user for what they do not use
//! ([`PeerProcesses`]).
//!
//! Two things protect the memory. The peer on either end must be a process of the same user, as the kernel says
//! (`SO_PEERCRED`), and the token has a random secret that is nowhere but in the token. The socket is found by a random
//! name: in the network namespace (an abstract name), and else in a folder that only this user may enter, so that
//! containers with different network namespaces need nothing but that folder in common.

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
