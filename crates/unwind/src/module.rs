//! Description of a loaded object.

use std::path::PathBuf;

/// A loaded object: the executable, a shared library, the vDSO.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Module {
    /// Address of its first byte.
    pub begin: u64,
    /// Address after its last byte.
    pub end: u64,
    /// Difference between an address in the process and the same address in the file.
    pub bias: u64,
    /// Path by which the dynamic linker knows it; the executable's by `/proc/self/exe`.
    pub path: PathBuf,
    /// Its `NT_GNU_BUILD_ID`; empty if it has none.
    pub build_id: BuildId,
}

/// First 20 bytes of a build id, the length of the SHA-1 that linkers use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BuildId {
    bytes: [u8; 20],
    len: usize,
}

impl BuildId {
    /// Returns the bytes, 20 at most.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

impl From<&[u8]> for BuildId {
    /// Copies the first 20 bytes at most.
    fn from(from: &[u8]) -> BuildId {
        let mut id = BuildId::default();
        for (to, from) in id.bytes.iter_mut().zip(from) {
            *to = *from;
            id.len += 1;
        }
        id
    }
}
