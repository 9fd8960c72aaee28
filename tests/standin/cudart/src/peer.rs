//! Access of one device to another's memory.

use std::ffi::{c_int, c_uint};

use crate::context;

entries! {
    /// Reports if a device can use another's memory.
    fn cudaDeviceCanAccessPeer(able: *mut c_int, device: c_int, peer: c_int) [driver] {
        forward!(driver.cuDeviceCanAccessPeer(able, device, peer))
    }

    /// Returns one property of the link between two devices.
    fn cudaDeviceGetP2PAttribute(value: *mut c_int, attribute: c_int, device: c_int, peer: c_int) [driver] {
        forward!(driver.cuDeviceGetP2PAttribute(value, attribute, device, peer))
    }

    /// Lets the current context use the memory of the peer's primary context.
    fn cudaDeviceEnablePeerAccess(peer: c_int, flags: c_uint) |driver| {
        match context::primary(driver, peer) {
            Ok(context) => forward!(driver.cuCtxEnablePeerAccess(context, flags)),
            Err(code) => code,
        }
    }

    /// Ends the current context's access to the memory of the peer's primary context.
    fn cudaDeviceDisablePeerAccess(peer: c_int) |driver| {
        match context::primary(driver, peer) {
            Ok(context) => forward!(driver.cuCtxDisablePeerAccess(context)),
            Err(code) => code,
        }
    }
}
