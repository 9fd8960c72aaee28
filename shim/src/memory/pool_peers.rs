//! Peer access that we enable for the memory of pools, kept apart from what the program enables: between two contexts
//! the driver knows only one.

use std::sync::Mutex;

use gpushim_alloc::Context;

use crate::cuda::types::{CUresult, PEER_ACCESS_ALREADY_ENABLED, SUCCESS};

/// The access of one context to another's memory.
struct Access {
    accessor: Context,
    owner: Context,
    /// The program enabled it and did not disable it since.
    is_theirs: bool,
}

/// The pairs of contexts for which pools rely on access.
static TABLE: Mutex<Vec<Access>> = Mutex::new(Vec::new());

fn with<R>(accessor: Context, owner: Context, f: impl FnOnce(&mut Access) -> R) -> Option<R> {
    let mut table = TABLE.lock().ok()?;
    let is_asked = |one: &&mut Access| one.accessor == accessor && one.owner == owner;
    table.iter_mut().find(is_asked).map(f)
}

/// Pools rely on an access from here on, which `enable` asks the driver for unless they did before.
///
/// # Errors
/// The driver's, if there is no access.
pub fn rely_on(
    accessor: Context,
    owner: Context,
    enable: impl FnOnce() -> CUresult,
) -> Result<(), CUresult> {
    // Noted first, so that the program does not see the access that we enable.
    if with(accessor, owner, |_| ()).is_some() {
        return Ok(());
    }
    if let Ok(mut table) = TABLE.lock() {
        table.push(Access {
            accessor,
            owner,
            is_theirs: false,
        });
    }
    match enable() {
        SUCCESS => Ok(()),
        PEER_ACCESS_ALREADY_ENABLED => {
            // The access exists, and we did not enable it.
            with(accessor, owner, |one| one.is_theirs = true);
            Ok(())
        }
        error => {
            if let Ok(mut table) = TABLE.lock() {
                table.retain(|one| one.accessor != accessor || one.owner != owner);
            }
            Err(error)
        }
    }
}

/// The program enables an access: true if nothing is left to do, because pools had enabled it already and the program
/// had not.
pub fn enabled(accessor: Context, owner: Context) -> bool {
    let adopt = |one: &mut Access| !std::mem::replace(&mut one.is_theirs, true);
    with(accessor, owner, adopt) == Some(true)
}

/// What a program's disabling of an access means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disabling {
    /// The driver does it.
    Forwarded,
    /// The access stays, for pools.
    Stays,
    /// The program had not enabled it.
    NotEnabled,
}

/// The program disables an access.
pub fn disabled(accessor: Context, owner: Context) -> Disabling {
    let part = |one: &mut Access| match std::mem::take(&mut one.is_theirs) {
        true => Disabling::Stays,
        false => Disabling::NotEnabled,
    };
    with(accessor, owner, part).unwrap_or(Disabling::Forwarded)
}

/// A context has ended, and with it every access from and to it.
pub fn gone(context: Context) {
    if let Ok(mut table) = TABLE.lock() {
        table.retain(|one| ![one.accessor, one.owner].contains(&context));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ACCESSOR: Context = Context(0x9810);

    #[test]
    fn what_pools_enabled_the_program_may_enable_and_disable_once() {
        let owner = Context(0x9820);
        assert!(!enabled(ACCESSOR, owner), "the driver answers");
        assert_eq!(disabled(ACCESSOR, owner), Disabling::Forwarded);
        assert_eq!(rely_on(ACCESSOR, owner, || SUCCESS), Ok(()));
        assert_eq!(disabled(ACCESSOR, owner), Disabling::NotEnabled);
        assert!(enabled(ACCESSOR, owner));
        assert!(!enabled(ACCESSOR, owner), "the driver refuses the second");
        assert_eq!(disabled(ACCESSOR, owner), Disabling::Stays);
        assert_eq!(disabled(ACCESSOR, owner), Disabling::NotEnabled);
        gone(ACCESSOR);
        assert_eq!(disabled(ACCESSOR, owner), Disabling::Forwarded);
    }

    #[test]
    fn what_the_program_enabled_stays_for_pools() {
        let owner = Context(0x9830);
        let enabled_before = || PEER_ACCESS_ALREADY_ENABLED;
        assert_eq!(rely_on(ACCESSOR, owner, enabled_before), Ok(()));
        assert!(!enabled(ACCESSOR, owner), "the driver refuses the second");
        assert_eq!(disabled(ACCESSOR, owner), Disabling::Stays);
        let again = || unreachable!("it is there");
        assert_eq!(rely_on(ACCESSOR, owner, again), Ok(()));
        assert_eq!(disabled(ACCESSOR, owner), Disabling::NotEnabled);
        gone(owner);
    }

    #[test]
    fn what_the_driver_refuses_is_forgotten() {
        let owner = Context(0x9840);
        assert_eq!(rely_on(ACCESSOR, owner, || 217), Err(217));
        assert_eq!(disabled(ACCESSOR, owner), Disabling::Forwarded);
    }
}
