//! A limit on device memory that several processes share: the ledger.
//!
//! A ledger is a file in shared memory. Each process has a slot in it, with its bytes of each
//! device. A request is charged before the driver is asked:
//!
//! 1. The process adds the bytes to the `asking` word of its own slot.
//! 2. It sums the words of all slots. If the sum is within the limit, the bytes move to `held`.
//! 3. Otherwise it takes the bytes back. The request is refused if the held bytes alone are in its
//!    way. If only other requests are, it tries again.
//!
//! There is no common sum, so nothing can be left wrong by a process that is killed. Of two
//! requests that together exceed the limit, the one that was added later sees the other.
//!
//! A slot is reused after a proof that its process has ended: the kernel knows no process with that
//! id and start time. Processes in other namespaces of process ids are proven by a lock on the
//! slot's byte, which the kernel releases. A file of an earlier boot has no processes.
//!
//! No lock of this crate is waited for while memory is charged.

mod device_name;
mod error;
mod file;
mod layout;
mod member;
mod process;
mod scope;
mod view;

pub use device_name::{device_name, device_uuid};
pub use error::Error;
pub use member::{Member, Terms};
pub use scope::Scope;
pub use view::{Entry, View};
