//! Last error of a thread, names and texts of errors, and the number of calls.

use std::cell::Cell;
use std::ffi::c_char;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::driver::{Code, SUCCESS};

thread_local! {
    static LAST: Cell<Code> = const { Cell::new(SUCCESS) };
}

static CALLS: AtomicU64 = AtomicU64::new(0);

/// Returns the number of calls so far of functions that may fail, in all threads. The real runtime
/// has no such function.
#[unsafe(no_mangle)]
extern "C" fn cudaStandinCalls() -> u64 {
    CALLS.load(Ordering::Relaxed)
}

/// Counts a call, keeps its error for `cudaGetLastError`, and returns the code.
pub fn finish(code: Code) -> Code {
    CALLS.fetch_add(1, Ordering::Relaxed);
    if code != SUCCESS {
        LAST.set(code);
    }
    code
}

/// Returns the thread's last error, and resets it to success.
#[unsafe(no_mangle)]
extern "C" fn cudaGetLastError() -> Code {
    LAST.replace(SUCCESS)
}

/// Returns the thread's last error.
#[unsafe(no_mangle)]
extern "C" fn cudaPeekAtLastError() -> Code {
    LAST.get()
}

macro_rules! errors {
    ($($code:literal $name:literal $text:literal;)*) => {
        fn find(code: Code) -> (&'static core::ffi::CStr, &'static core::ffi::CStr) {
            match code {
                $($code => ($name, $text),)*
                _ => (c"unrecognized error code", c"unrecognized error code"),
            }
        }
    };
}

errors! {
    0 c"cudaSuccess" c"no error";
    1 c"cudaErrorInvalidValue" c"invalid argument";
    2 c"cudaErrorMemoryAllocation" c"out of memory";
    3 c"cudaErrorInitializationError" c"initialization error";
    4 c"cudaErrorCudartUnloading" c"driver shutting down";
    21 c"cudaErrorInvalidMemcpyDirection" c"invalid copy direction for memcpy";
    35 c"cudaErrorInsufficientDriver" c"CUDA driver version is insufficient for CUDA runtime version";
    36 c"cudaErrorCallRequiresNewerDriver" c"API call is not supported in the installed CUDA driver";
    98 c"cudaErrorInvalidDeviceFunction" c"invalid device function";
    100 c"cudaErrorNoDevice" c"no CUDA-capable device is detected";
    101 c"cudaErrorInvalidDevice" c"invalid device ordinal";
    201 c"cudaErrorDeviceUninitialized" c"invalid device context";
    217 c"cudaErrorPeerAccessUnsupported" c"peer access is not supported between these two devices";
    304 c"cudaErrorOperatingSystem" c"OS call failed or operation not supported on this OS";
    400 c"cudaErrorInvalidResourceHandle" c"invalid resource handle";
    401 c"cudaErrorIllegalState" c"the operation cannot be performed in the present state";
    500 c"cudaErrorSymbolNotFound" c"named symbol not found";
    600 c"cudaErrorNotReady" c"device not ready";
    700 c"cudaErrorIllegalAddress" c"an illegal memory access was encountered";
    704 c"cudaErrorPeerAccessAlreadyEnabled" c"peer access is already enabled";
    705 c"cudaErrorPeerAccessNotEnabled" c"peer access has not been enabled";
    708 c"cudaErrorSetOnActiveProcess" c"cannot set while device is active in this process";
    709 c"cudaErrorContextIsDestroyed" c"context is destroyed";
    712 c"cudaErrorHostMemoryAlreadyRegistered" c"part or all of the requested memory range is already mapped";
    713 c"cudaErrorHostMemoryNotRegistered" c"pointer does not correspond to a registered memory region";
    800 c"cudaErrorNotPermitted" c"operation not permitted";
    801 c"cudaErrorNotSupported" c"operation not supported";
    900 c"cudaErrorStreamCaptureUnsupported" c"operation not permitted when stream is capturing";
    901 c"cudaErrorStreamCaptureInvalidated" c"operation failed due to a previous error during capture";
    902 c"cudaErrorStreamCaptureMerge" c"operation would result in a merge of separate capture sequences";
    903 c"cudaErrorStreamCaptureUnmatched" c"capture was not ended in the same stream as it began";
    904 c"cudaErrorStreamCaptureUnjoined" c"capturing stream has unjoined work";
    905 c"cudaErrorStreamCaptureIsolation" c"dependency created on uncaptured work in another stream";
    906 c"cudaErrorStreamCaptureImplicit" c"operation would make the legacy stream depend on a capturing blocking stream";
    907 c"cudaErrorCapturedEvent" c"operation not permitted on an event last recorded in a capturing stream";
    908 c"cudaErrorStreamCaptureWrongThread" c"attempt to terminate a thread-local capture sequence from another thread";
    999 c"cudaErrorUnknown" c"unknown error";
}

/// Returns the description of an error.
#[unsafe(no_mangle)]
extern "C" fn cudaGetErrorString(code: Code) -> *const c_char {
    find(code).1.as_ptr()
}

/// Returns the name of an error's enumerator.
#[unsafe(no_mangle)]
extern "C" fn cudaGetErrorName(code: Code) -> *const c_char {
    find(code).0.as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_error_is_kept_until_it_is_taken() {
        assert_eq!(finish(2), 2);
        assert_eq!(finish(SUCCESS), SUCCESS);
        assert_eq!(cudaPeekAtLastError(), 2);
        assert_eq!(cudaGetLastError(), 2);
        assert_eq!(cudaGetLastError(), SUCCESS);
    }

    #[test]
    fn the_last_error_is_a_threads_own() {
        finish(1);
        std::thread::spawn(|| assert_eq!(cudaGetLastError(), SUCCESS))
            .join()
            .expect("the thread's check holds");
        assert_eq!(cudaGetLastError(), 1);
    }
}
