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

/// Returns the checksum over whole words, little endian, the last one padded with zeros. It detects
/// any change of a single word, at one multiplication for each word.
pub fn words(bytes: &[u8]) -> u64 {
    let whole = bytes.chunks_exact(8);
    let mut last = [0; 8];
    let rest = whole.remainder();
    last.iter_mut().zip(rest).for_each(|(to, byte)| *to = *byte);
    let last = (!rest.is_empty()).then_some(u64::from_le_bytes(last));
    let whole = whole.map(|word| word.try_into().map_or(0, u64::from_le_bytes));
    sum(whole.chain(last))
}
