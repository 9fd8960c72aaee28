//! Access of one device to another's memory.

use std::ffi::{c_int, c_uint};

use crate::context;

entries! {
    /// Whether a device can use another's memory.
    fn cudaDeviceCanAccessPeer(able: *mut c_int, device: c_int, peer: c_int) [driver] {
        forward!(driver.cuDeviceCanAccessPeer(able, device, peer))
    }

    /// What the link between two devices can do.
    fn cudaDeviceGetP2PAttribute(value: *mut c_int, attribute: c_int, device: c_int, peer: c_int) [driver] {
        forward!(driver.cuDeviceGetP2PAttribute(value, attribute, device, peer))
    }

    /// The thread's device may use the peer's memory from here on.
    fn cudaDeviceEnablePeerAccess(peer: c_int, flags: c_uint) |driver| {
        match context::primary(driver, peer) {
            Ok(context) => forward!(driver.cuCtxEnablePeerAccess(context, flags)),
            Err(code) => code,
        }
    }

    /// Ends that.
    fn cudaDeviceDisablePeerAccess(peer: c_int) |driver| {
        match context::primary(driver, peer) {
            Ok(context) => forward!(driver.cuCtxDisablePeerAccess(context)),
            Err(code) => code,
        }
    }
}
