//! Result codes of the driver API, with the names and texts that `cuGetErrorName` and
//! `cuGetErrorString` give.

/// A result of the driver API, as C sees it.
pub type CUresult = u32;

/// Result of a call inside the stand-in. `Err` carries any code but `CUDA_SUCCESS`.
pub type Outcome<T = ()> = Result<T, CUresult>;

macro_rules! codes {
    ($($name:ident = $value:literal, $text:literal;)*) => {
        // All codes have names, including codes that nothing here returns.
        $(#[doc = $text] #[allow(dead_code)] pub const $name: CUresult = $value;)*

        /// C name and text of each code.
        static TABLE: &[(CUresult, &core::ffi::CStr, &core::ffi::CStr)] = &[
            $(($value, c_str(concat!("CUDA_", codes!(@prefix $name), stringify!($name), "\0")), c_str(concat!($text, "\0"))),)*
        ];
    };
    (@prefix SUCCESS) => { "" };
    (@prefix $name:ident) => { "ERROR_" };
}

const fn c_str(text: &'static str) -> &'static core::ffi::CStr {
    match core::ffi::CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(text) => text,
        Err(_) => panic!("a table text holds a nul"),
    }
}

codes! {
    SUCCESS = 0, "no error";
    INVALID_VALUE = 1, "invalid argument";
    OUT_OF_MEMORY = 2, "out of memory";
    NOT_INITIALIZED = 3, "initialization error";
    DEINITIALIZED = 4, "driver shutting down";
    PROFILER_DISABLED = 5, "profiler disabled while using external profiling tool";
    STUB_LIBRARY = 34, "CUDA driver is a stub library";
    DEVICE_UNAVAILABLE = 46, "CUDA-capable device(s) is/are busy or unavailable";
    NO_DEVICE = 100, "no CUDA-capable device is detected";
    INVALID_DEVICE = 101, "invalid device ordinal";
    INVALID_IMAGE = 200, "device kernel image is invalid";
    INVALID_CONTEXT = 201, "invalid device context";
    MAP_FAILED = 205, "mapping of buffer object failed";
    UNMAP_FAILED = 206, "unmapping of buffer object failed";
    ARRAY_IS_MAPPED = 207, "array is mapped";
    ALREADY_MAPPED = 208, "resource already mapped";
    NO_BINARY_FOR_GPU = 209, "no kernel image is available for execution on the device";
    NOT_MAPPED = 211, "resource not mapped";
    UNSUPPORTED_LIMIT = 215, "limit is not supported on this architecture";
    PEER_ACCESS_UNSUPPORTED = 217, "peer access is not supported between these two devices";
    INVALID_PTX = 218, "a PTX JIT compilation failed";
    INVALID_SOURCE = 300, "device kernel image is invalid";
    FILE_NOT_FOUND = 301, "file not found";
    OPERATING_SYSTEM = 304, "OS call failed or operation not supported on this OS";
    INVALID_HANDLE = 400, "invalid resource handle";
    ILLEGAL_STATE = 401, "the operation cannot be performed in the present state";
    NOT_FOUND = 500, "named symbol not found";
    NOT_READY = 600, "device not ready";
    ILLEGAL_ADDRESS = 700, "an illegal memory access was encountered";
    PEER_ACCESS_ALREADY_ENABLED = 704, "peer access is already enabled";
    PEER_ACCESS_NOT_ENABLED = 705, "peer access has not been enabled";
    PRIMARY_CONTEXT_ACTIVE = 708, "cannot set while device is active in this process";
    CONTEXT_IS_DESTROYED = 709, "context is destroyed";
    TOO_MANY_PEERS = 711, "peer mapping resources exhausted";
    HOST_MEMORY_ALREADY_REGISTERED = 712, "part or all of the requested memory range is already mapped";
    HOST_MEMORY_NOT_REGISTERED = 713, "pointer does not correspond to a registered memory region";
    NOT_PERMITTED = 800, "operation not permitted";
    NOT_SUPPORTED = 801, "operation not supported";
    STREAM_CAPTURE_UNSUPPORTED = 900, "operation not permitted when stream is capturing";
    STREAM_CAPTURE_INVALIDATED = 901, "operation failed due to a previous error during capture";
    STREAM_CAPTURE_MERGE = 902, "operation would result in a merge of separate capture sequences";
    STREAM_CAPTURE_UNMATCHED = 903, "capture was not ended in the same stream as it began";
    STREAM_CAPTURE_UNJOINED = 904, "capturing stream has unjoined work";
    STREAM_CAPTURE_ISOLATION = 905, "dependency created on uncaptured work in another stream";
    STREAM_CAPTURE_IMPLICIT = 906, "operation would make the legacy stream depend on a capturing blocking stream";
    CAPTURED_EVENT = 907, "operation not permitted on an event last recorded in a capturing stream";
    STREAM_CAPTURE_WRONG_THREAD = 908, "attempt to terminate a thread-local capture sequence from another thread";
    TIMEOUT = 909, "wait operation timed out";
    GRAPH_EXEC_UPDATE_FAILURE = 910, "the graph update was not performed because it included changes which violated constraints specific to instantiated graph update";
    EXTERNAL_DEVICE = 911, "an async error has occurred in external entity outside of CUDA";
    UNKNOWN = 999, "unknown error";
}

/// Returns C name and text of a code that the driver knows.
pub fn texts(code: CUresult) -> Option<(&'static core::ffi::CStr, &'static core::ffi::CStr)> {
    TABLE
        .iter()
        .find(|(value, _, _)| *value == code)
        .map(|(_, name, text)| (*name, *text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_the_headers() {
        assert_eq!(texts(SUCCESS).unwrap().0, c"CUDA_SUCCESS");
        assert_eq!(
            texts(2),
            Some((c"CUDA_ERROR_OUT_OF_MEMORY", c"out of memory"))
        );
        assert_eq!(texts(12345), None);
    }
}
