//! Descriptors of a library within a program that may close them all and use their numbers again.
//!
//! A descriptor that stays open between two calls, or during a wait for another process, is a
//! [`KeptDescriptor`]: each use begins with a proof. A file with a path stays closed: each use
//! opens it and proves its [`Identity`].
//!
//! No proof covers the moment between itself and the call. None covers the short time in which a
//! function opens, reads and closes a file, either. A program whose thread closes foreign numbers
//! just then races with every library.

mod identity;
mod kept;

pub use identity::{Identity, create, open};
pub use kept::KeptDescriptor;
