//! Tokens in place of IPC handles: 64 bytes that the importer's library reads, and a driver
//! refuses.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::BorrowedFd;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::pread;
use rustix::rand::{GetRandomFlags, getrandom};

/// Random bytes of a name or a secret.
pub type Random = [u8; 16];

/// First bytes of every token. The last of them is the version of the layout and of the messages.
const MAGIC: [u8; 8] = *b"gpushim\x01";

/// Names one exported block of one process.
///
/// Layout: magic (8 bytes), process id (4), zeros (4), name (16), secret (16), block (8), bytes
/// (8). Numbers are in the byte order of the machine, which the two processes share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    /// The exporter's process id in its own namespace. It is for messages only, as other namespaces
    /// have other ids.
    pub process: u32,
    /// Random part of the socket's name, at which the exporter listens. Others can see it.
    pub name: Random,
    /// Proves that its owner was given the token.
    pub secret: Random,
    /// The exporter's number for the block. None of its other blocks ever has the same.
    pub block: u64,
    /// Number of bytes of the block.
    pub bytes: u64,
}

impl Token {
    /// Bytes of a token, as many as `CUipcMemHandle` has (`CU_IPC_HANDLE_SIZE` in cuda.h).
    pub const SIZE: usize = 64;

    /// Encodes the token as the bytes of a handle.
    pub fn encode(&self) -> [u8; Token::SIZE] {
        let mut bytes = [0; Token::SIZE];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&self.process.to_ne_bytes());
        bytes[16..32].copy_from_slice(&self.name);
        bytes[32..48].copy_from_slice(&self.secret);
        bytes[48..56].copy_from_slice(&self.block.to_ne_bytes());
        bytes[56..].copy_from_slice(&self.bytes.to_ne_bytes());
        bytes
    }

    /// True if the block ends within `memory` bytes when it begins `offset` bytes after their
    /// beginning.
    pub fn fits(&self, memory: u64, offset: u64) -> bool {
        let end = offset.checked_add(self.bytes);
        end.is_some_and(|end| offset < end && end <= memory)
    }

    /// Makes a file in memory that holds the token alone.
    ///
    /// # Errors
    /// The kernel's, if it makes no file.
    pub fn to_file(&self) -> io::Result<File> {
        let mut file = File::from(memfd_create("gpushim-token", MemfdFlags::CLOEXEC)?);
        file.write_all(&self.encode())?;
        Ok(file)
    }

    /// Reads the token in a file of [`Token::to_file`]. `None`: it is another file.
    pub fn from_file(file: BorrowedFd<'_>) -> Option<Token> {
        let mut bytes = [0; Token::SIZE + 1];
        let read = pread(file, &mut bytes, 0).ok()?;
        let bytes = bytes[..read].try_into().ok()?;
        Token::decode(bytes)
    }

    /// Parses a handle's bytes. `None`: the handle is the driver's, or another version's.
    pub fn decode(bytes: &[u8; Token::SIZE]) -> Option<Token> {
        let is_token = bytes[..8] == MAGIC && bytes[12..16] == [0; 4];
        is_token.then_some(())?;
        Some(Token {
            process: u32::from_ne_bytes(bytes[8..12].try_into().ok()?),
            name: bytes[16..32].try_into().ok()?,
            secret: bytes[32..48].try_into().ok()?,
            block: u64::from_ne_bytes(bytes[48..56].try_into().ok()?),
            bytes: u64::from_ne_bytes(bytes[56..].try_into().ok()?),
        })
    }
}

/// Returns bytes that no other process can guess.
///
/// # Errors
/// The kernel has none.
pub fn random() -> io::Result<Random> {
    let mut bytes = Random::default();
    // The kernel returns so few bytes at once, or none.
    let filled = getrandom(&mut bytes, GetRandomFlags::empty())?;
    match filled == bytes.len() {
        true => Ok(bytes),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// True if two secrets are equal. The time does not depend on the place where they differ.
pub fn is_same(one: &Random, other: &Random) -> bool {
    let differing = |all, (a, b): (&u8, &u8)| all | (a ^ b);
    one.iter().zip(other).fold(0, differing) == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::fd::AsFd;

    proptest! {
        #[test]
        fn a_token_is_read_as_it_was_written(
            process: u32, name: Random, secret: Random, block: u64, bytes: u64,
        ) {
            let token = Token { process, name, secret, block, bytes };
            prop_assert_eq!(Token::decode(&token.encode()), Some(token));
        }

        #[test]
        fn a_secret_with_one_other_bit_is_another(secret: Random, at in 0..128usize) {
            let mut other = secret;
            prop_assert!(is_same(&secret, &other));
            other[at / 8] ^= 1 << (at % 8);
            prop_assert!(!is_same(&secret, &other));
        }
    }

    #[test]
    fn other_handles_are_no_tokens() {
        assert_eq!(Token::decode(&[0; Token::SIZE]), None);
        assert_eq!(Token::decode(&[0x55; Token::SIZE]), None);
        let (name, secret) = ([1; 16], [2; 16]);
        let token = Token {
            process: 1,
            name,
            secret,
            block: 3,
            bytes: 4,
        };
        for at in 0..8 {
            let mut bytes = token.encode();
            bytes[at] ^= 1;
            assert_eq!(Token::decode(&bytes), None, "byte {at} of the magic number");
        }
    }

    #[test]
    fn a_file_is_a_token_if_it_holds_nothing_else() {
        let (name, secret) = ([1; 16], [2; 16]);
        let token = Token {
            process: 1,
            name,
            secret,
            block: 3,
            bytes: 4,
        };
        let mut file = token.to_file().expect("a file");
        assert_eq!(Token::from_file(file.as_fd()), Some(token));
        file.write_all(b"more").expect("there is space");
        assert_eq!(Token::from_file(file.as_fd()), None);
        let (pipe, _) = std::io::pipe().expect("a pipe");
        assert_eq!(Token::from_file(pipe.as_fd()), None);
    }

    #[test]
    fn a_block_fits_only_if_its_end_does() {
        let of = |bytes| Token {
            process: 1,
            name: [1; 16],
            secret: [2; 16],
            block: 3,
            bytes,
        };
        assert!(of(4096).fits(8192, 4096) && of(8192).fits(8192, 0));
        assert!(!of(4097).fits(8192, 4096) && !of(0).fits(8192, 4096));
        assert!(!of(8192).fits(1 << 21, u64::MAX - 4095), "it wraps");
        assert!(!of(u64::MAX).fits(1 << 21, 4096) && !of(u64::MAX).fits(1 << 21, 0));
    }

    #[test]
    fn random_bytes_differ() {
        let [one, other] = [(); 2].map(|()| random().expect("random bytes"));
        assert!(!is_same(&one, &other));
    }
}
