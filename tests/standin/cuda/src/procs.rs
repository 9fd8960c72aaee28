//! The table of all functions, and `cuGetProcAddress` in both its ABIs.

use crate::abi::{Out, Text};
use crate::api::{Proc, Via};
use crate::codes::{INVALID_VALUE, NOT_FOUND, Outcome};
use crate::env::{Feature, settings};

/// The parts of the table, one for each module.
static PARTS: &[&[Proc]] = &[
    PROCS,
    crate::init::PROCS,
    crate::device::PROCS,
    crate::context::PROCS,
    crate::primary::PROCS,
    crate::green::PROCS,
    crate::memory::PROCS,
    crate::host::PROCS,
    crate::array::PROCS,
    crate::attach::PROCS,
    crate::copy::PROCS,
    crate::copy3d::PROCS,
    crate::fill::PROCS,
    crate::stream::PROCS,
    crate::stream_attr::PROCS,
    crate::advice::PROCS,
    crate::event::PROCS,
    crate::hostfn::PROCS,
    crate::module::PROCS,
    crate::function::PROCS,
    crate::capture_api::PROCS,
    crate::graph::PROCS,
    crate::graph_node::PROCS,
    crate::exec::PROCS,
    crate::vmm::PROCS,
    crate::mempool_api::PROCS,
    crate::pointer::PROCS,
    crate::peer::PROCS,
    crate::ipc::PROCS,
    crate::external::PROCS,
];

/// `CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM`.
const PER_THREAD_DEFAULT_STREAM: u64 = 2;
/// All known flags: legacy and per-thread default stream.
const KNOWN_FLAGS: u64 = 3;

/// Values of `CUdriverProcAddressQueryResult`.
mod status {
    pub const FOUND: u32 = 0;
    pub const NO_SUCH_NAME: u32 = 1;
    pub const VERSION_NOT_SUFFICIENT: u32 = 2;
}

fn all() -> impl Iterator<Item = &'static Proc> {
    PARTS.iter().flat_map(|part| part.iter())
}

/// True if `STANDIN_DISABLE` names the function, by its name or its symbol.
pub fn is_disabled(name: &str) -> bool {
    let disabled = &settings().disabled;
    !disabled.is_empty() && disabled.iter().any(|other| other == name)
}

/// True if the function belongs to a feature that `STANDIN_LACKS` names.
pub fn is_lacking(symbol: &str) -> bool {
    settings().lacking.iter().any(|feature| {
        let part = match feature {
            Feature::Vmm => crate::vmm::PROCS,
            Feature::Pools => crate::mempool_api::PROCS,
        };
        part.iter().any(|proc| proc.symbol == symbol)
    })
}

/// Returns the variant that `cuGetProcAddress` finds, or the status of a search without result.
fn search(name: &str, version: i32, flags: u64) -> Result<&'static Proc, u32> {
    let settings = settings();
    let wanted = match flags & PER_THREAD_DEFAULT_STREAM {
        0 => Via::Legacy,
        _ => Via::PerThread,
    };
    let mut known = false;
    all()
        .filter(|proc| proc.name == name)
        .filter(|proc| {
            proc.version <= settings.version && !is_disabled(proc.name) && !is_disabled(proc.symbol)
        })
        .inspect(|_| known = true)
        .filter(|proc| proc.version <= version && proc.via.is_none_or(|via| via == wanted))
        .max_by_key(|proc| proc.version)
        .ok_or(match known {
            true => status::VERSION_NOT_SUFFICIENT,
            false => status::NO_SUCH_NAME,
        })
}

fn get(name: Text, address: Out<*const ()>, version: i32, flags: u64, found: Out<u32>) -> Outcome {
    let name = name.get()?;
    address.required()?;
    // A version above the driver's is refused. A negative version means the driver's own.
    if flags & !KNOWN_FLAGS != 0 || version > settings().version {
        return Err(INVALID_VALUE);
    }
    let version = if version < 0 {
        settings().version
    } else {
        version
    };
    match search(&name, version, flags) {
        Ok(proc) => {
            found.maybe(status::FOUND);
            address.put(proc.address.0)
        }
        Err(status) => {
            // A caller that takes a status gets it, with a null address.
            found.put(status).map_err(|_| NOT_FOUND)?;
            address.put(std::ptr::null())
        }
    }
}

api! {
    /// Finds a function's variant, with the ABI before CUDA 12.
    cuGetProcAddress 11030 => fn cuGetProcAddress(name: Text, address: Out<*const ()>, version: i32, flags: u64) {
        get(name, address, version, flags, Out::nowhere())
    }
    /// Finds a function's variant, with the ABI of CUDA 12 and later.
    cuGetProcAddress 12000 => fn cuGetProcAddress_v2(name: Text, address: Out<*const ()>, version: i32, flags: u64, status: Out<u32>) {
        get(name, address, version, flags, status)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn symbol(name: &str, version: i32, flags: u64) -> Result<&'static str, u32> {
        search(name, version, flags).map(|proc| proc.symbol)
    }

    #[test]
    fn picks_the_variant_by_version() {
        assert_eq!(symbol("cuCtxCreate", 3020, 0), Ok("cuCtxCreate_v2"));
        assert_eq!(symbol("cuCtxCreate", 12000, 0), Ok("cuCtxCreate_v3"));
        assert_eq!(symbol("cuCtxCreate", 13000, 0), Ok("cuCtxCreate_v4"));
        assert_eq!(
            symbol("cuStreamGetCaptureInfo", 11030, 0),
            Ok("cuStreamGetCaptureInfo_v2")
        );
        assert_eq!(
            symbol("cuCtxRecordEvent", 12000, 0),
            Err(status::VERSION_NOT_SUFFICIENT)
        );
    }

    #[test]
    fn picks_the_default_stream_by_flag() {
        assert_eq!(
            symbol("cuMemcpyHtoDAsync", 13000, 0),
            Ok("cuMemcpyHtoDAsync_v2")
        );
        assert_eq!(
            symbol("cuMemcpyHtoDAsync", 13000, 1),
            Ok("cuMemcpyHtoDAsync_v2")
        );
        assert_eq!(
            symbol("cuMemcpyHtoDAsync", 13000, 2),
            Ok("cuMemcpyHtoDAsync_v2_ptsz")
        );
        assert_eq!(symbol("cuMemAlloc", 13000, 2), Ok("cuMemAlloc_v2"));
    }

    #[test]
    fn names_have_no_suffix() {
        assert_eq!(symbol("cuMemAlloc_v2", 13000, 0), Err(status::NO_SUCH_NAME));
        assert_eq!(symbol("cudnnCreate", 13000, 0), Err(status::NO_SUCH_NAME));
    }

    #[test]
    fn every_function_has_an_address_of_its_own() {
        let mut seen = HashMap::new();
        for proc in all() {
            if let Some(other) = seen.insert(proc.address.0 as usize, proc.symbol) {
                panic!("{} and {other} share an address", proc.symbol);
            }
        }
    }
}
