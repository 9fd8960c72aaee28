//! Descriptors of a library within a program that may close them all and use their numbers again.
//!
//! A descriptor that stays open between two calls, or while another process is waited for, is a
//! [`KeptDescriptor`]: each use begins with a proof. A file that has a path stays closed: each use opens it
//! and proves its [`Identity`].
//!
//! No proof covers the moment between itself and the call, nor the short time in which a function opens,
//! reads and closes a file. A program whose thread closes foreign numbers just then is in a race with every
//! library.

mod identity;
mod kept;

pub use identity::{Identity, create, open};
pub use kept::KeptDescriptor;
