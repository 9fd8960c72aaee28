//! Places in the program that ask for memory: which of them are PyTorch's, and announce what they cut from it.

use std::ffi::c_void;
use std::sync::RwLock;

use crate::base::linker;

/// The library of PyTorch's allocator, as its file's name begins.
const LIBRARY: &str = "libc10_cuda";

/// Segments that a place gets before it has announced a tensor, at most: where PyTorch asks for each tensor by itself
/// it announces none, and a page for each would be a waste.
const TRIALS: u32 = 4;

/// What a place may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Ordinary memory.
    None,
    /// A segment with all its memory, until it announces a tensor there.
    Trial,
    /// A segment.
    Full,
}

struct Site {
    caller: usize,
    is_torch: bool,
    has_announced: bool,
    trials: u32,
}

static SITES: RwLock<Vec<Site>> = RwLock::new(Vec::new());

/// What the place at a return address may have.
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

/// A place got a segment on trial.
pub fn tried(caller: *const c_void) {
    change(caller, |site| site.trials += 1);
}

/// A tensor was announced where the place got a segment on trial.
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
