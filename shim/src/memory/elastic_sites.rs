//! Places in the program that ask for memory: the ones in PyTorch that announce the tensors they
//! cut from it are trusted.

use std::ffi::c_void;
use std::sync::RwLock;

use crate::base::linker;

/// First part of the file name of the library with PyTorch's allocator.
const LIBRARY: &str = "libc10_cuda";

/// Most segments that a place gets before it has announced a tensor. A place where PyTorch asks for
/// each tensor separately announces none: a page for each tensor would be a waste.
const TRIALS: u32 = 4;

/// Kind of memory that a place may get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Ordinary memory, and no segment.
    None,
    /// A segment with all its memory, until the place announces a tensor there.
    Trial,
    /// A segment with memory only for its tensors.
    Full,
}

struct Site {
    caller: usize,
    is_torch: bool,
    has_announced: bool,
    trials: u32,
}

static SITES: RwLock<Vec<Site>> = RwLock::new(Vec::new());

/// Returns the kind of memory that the place at a return address may get.
pub fn trust(caller: *const c_void) -> Trust {
    let of = |site: &Site| match site {
        site if site.has_announced => Trust::Full,
        site if site.is_torch && site.trials < TRIALS => Trust::Trial,
        _ => Trust::None,
    };
    let Ok(sites) = SITES.read() else {
        return Trust::None;
    };
    if let Some(site) = sites.iter().find(|site| site.caller == caller as usize) {
        return of(site);
    }
    drop(sites);
    let path = linker::library_at(caller).unwrap_or_default();
    let file = path.rsplit('/').next().unwrap_or_default();
    let site = Site {
        caller: caller as usize,
        is_torch: file.starts_with(LIBRARY),
        has_announced: false,
        trials: 0,
    };
    let trust = of(&site);
    if let Ok(mut sites) = SITES.write() {
        sites.push(site);
    }
    trust
}

fn change(caller: *const c_void, change: impl FnOnce(&mut Site)) {
    if let Ok(mut sites) = SITES.write()
        && let Some(site) = sites.iter_mut().find(|site| site.caller == caller as usize)
    {
        change(site);
    }
}

/// Counts a segment that a place got on trial.
pub fn tried(caller: *const c_void) {
    change(caller, |site| site.trials += 1);
}

/// Trusts a place after a tensor was announced in its segment on trial.
pub fn has_announced(caller: *const c_void) {
    change(caller, |site| site.has_announced = true);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_of_another_library_gets_ordinary_memory() {
        let here = a_place_of_another_library_gets_ordinary_memory as *const c_void;
        assert_eq!(trust(here), Trust::None);
        tried(here);
        assert_eq!(trust(here), Trust::None);
    }

    #[test]
    fn a_place_of_pytorch_has_some_trials_and_is_trusted_when_it_announces() {
        let caller = 0x10 as *const c_void;
        SITES.write().expect("no test panics").push(Site {
            caller: caller as usize,
            is_torch: true,
            has_announced: false,
            trials: 0,
        });
        for _ in 0..TRIALS {
            assert_eq!(trust(caller), Trust::Trial);
            tried(caller);
        }
        assert_eq!(trust(caller), Trust::None);
        has_announced(caller);
        assert_eq!(trust(caller), Trust::Full);
    }
}
