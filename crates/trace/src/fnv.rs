//! Checksums: 64-bit FNV-1a, over bytes or over larger words.

/// Returns the checksum of words, in their order.
///
/// ```
/// assert_eq!(gpushim_trace::fnv::sum([u64::from(b'a')]), 0xaf63_dc4c_8601_ec8c);
/// ```
pub fn sum(words: impl IntoIterator<Item = u64>) -> u64 {
    words.into_iter().fold(0xcbf2_9ce4_8422_2325, |hash, word| {
        (hash ^ word).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
