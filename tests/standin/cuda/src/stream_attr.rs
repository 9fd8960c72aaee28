//! Stream attributes: stored without effect.

use crate::abi::{In, Out};
use crate::codes::{INVALID_VALUE, Outcome};
use crate::state::lock;

/// Value of an attribute (`CUstreamAttrValue`): a union of 64 bytes.
pub type Value = [u64; 8];

/// Attributes that streams have: `CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW`,
/// `..._SYNCHRONIZATION_POLICY`, `..._PRIORITY`, `..._MEM_SYNC_DOMAIN_MAP`, `..._MEM_SYNC_DOMAIN`.
const KNOWN: [u32; 5] = [1, 3, 8, 9, 10];

fn known(attribute: u32) -> Outcome {
    match KNOWN.contains(&attribute) {
        true => Ok(()),
        false => Err(INVALID_VALUE),
    }
}

api! {
    /// Returns one attribute of a stream; zero if it was never set.
    cuStreamGetAttribute 11000 => fn cuStreamGetAttribute | cuStreamGetAttribute_ptsz[via](stream: u64, attribute: u32, value: Out<Value>) {
        let mut state = lock()?;
        let key = state.stream(via, stream)?;
        known(attribute)?;
        value.put(state.streams.get(key)?.attributes.get(&attribute).copied().unwrap_or_default())
    }
    /// Sets one attribute of a stream.
    cuStreamSetAttribute 11000 => fn cuStreamSetAttribute | cuStreamSetAttribute_ptsz[via](stream: u64, attribute: u32, value: In<Value>) {
        let mut state = lock()?;
        let key = state.stream(via, stream)?;
        known(attribute)?;
        state.streams.get_mut(key)?.attributes.insert(attribute, value.get()?);
        Ok(())
    }
    /// Copies all attributes of a stream to another.
    cuStreamCopyAttributes 11000 => fn cuStreamCopyAttributes | cuStreamCopyAttributes_ptsz[via](to: u64, from: u64) {
        let mut state = lock()?;
        let (to, from) = (state.stream(via, to)?, state.stream(via, from)?);
        state.streams.get_mut(to)?.attributes = state.streams.get(from)?.attributes.clone();
        Ok(())
    }
}
