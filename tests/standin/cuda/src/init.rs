//! Initialisation, version, errors, profiler, and other functions without a context.

use crate::abi::{In, Out};
use crate::codes::{CUresult, INVALID_VALUE, NOT_FOUND, texts};
use crate::env::settings;

api! {
    cuInit 2000 => fn cuInit(flags: u32) {
        if flags != 0 {
            return Err(INVALID_VALUE);
        }
        crate::state::initialize()?;
        match settings().devices {
            0 => Err(crate::codes::NO_DEVICE),
            _ => Ok(()),
        }
    }
    cuDriverGetVersion 2020 => fn cuDriverGetVersion(version: Out<i32>) {
        version.put(settings().version)
    }
    /// Returns the C name of a code.
    cuGetErrorName 6000 => fn cuGetErrorName(code: CUresult, name: Out<*const libc::c_char>) {
        name.put(texts(code).map_or(std::ptr::null(), |(name, _)| name.as_ptr()))?;
        texts(code).map(|_| ()).ok_or(INVALID_VALUE)
    }
    /// Returns the text of a code.
    cuGetErrorString 6000 => fn cuGetErrorString(code: CUresult, text: Out<*const libc::c_char>) {
        text.put(texts(code).map_or(std::ptr::null(), |(_, text)| text.as_ptr()))?;
        texts(code).map(|_| ()).ok_or(INVALID_VALUE)
    }
    /// Finds no table: the private tables of the real driver do not exist here.
    cuGetExportTable 3000 => fn cuGetExportTable(table: Out<*const libc::c_void>, id: In<[u8; 16]>) {
        id.get()?;
        table.put(std::ptr::null())?;
        Err(NOT_FOUND)
    }
    cuProfilerStart 4000 => fn cuProfilerStart() {
        crate::state::lock().map(drop)
    }
    cuProfilerStop 4000 => fn cuProfilerStop() {
        crate::state::lock().map(drop)
    }
}
