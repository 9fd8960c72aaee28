//! The memory of a pool: pages that are mapped where they are needed, or whole driver allocations.

pub(super) mod block_pieces;
pub(super) mod mapping;
pub(super) mod pages;
pub(super) mod piece_size;
pub(super) mod space;
pub(super) mod whole;
