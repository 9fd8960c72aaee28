//! Messages over the socket: a request, and the reply. Each is one packet.

use crate::token::Random;

/// Most pieces in one reply. The kernel passes 253 descriptors at once (`SCM_MAX_FD`), and
/// descriptors that are not received yet count against the sender's limit.
pub const BATCH: usize = 32;

/// A request to another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Requests pieces of a block.
    Pieces(Request),
    /// Requests memory that it does not use.
    Room(Room),
}

/// A request for pieces of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Secret that the token has.
    pub secret: Random,
    /// Number of the block in the token.
    pub block: u64,
    /// Bytes of the memory before the first wanted piece.
    pub from: u64,
}

/// A request to give memory of a device back to its driver. The reply is the number of bytes given
/// back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// The device, as `cuDeviceGetUuid` names it: processes may number their devices differently.
    pub device: [u8; 16],
    /// Number of bytes that are wanted.
    pub bytes: u64,
    /// The ledger of the limit that refused the request: only its members are asked. Zeros if the
    /// device has no memory left.
    pub ledger: [u8; 16],
}

/// First word of a request for pieces; [`ASKS_ROOM`] is the first word of a request for memory.
const ASKS_PIECES: u32 = 0;
const ASKS_ROOM: u32 = 1;

impl Ask {
    /// Most bytes that a request has.
    pub(crate) const SIZE: usize = 44;

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(Ask::SIZE);
        match self {
            Ask::Pieces(request) => {
                bytes.extend(ASKS_PIECES.to_ne_bytes());
                bytes.extend(request.from.to_ne_bytes());
                bytes.extend(request.block.to_ne_bytes());
                bytes.extend(request.secret);
            }
            Ask::Room(room) => {
                bytes.extend(ASKS_ROOM.to_ne_bytes());
                bytes.extend(room.bytes.to_ne_bytes());
                bytes.extend(room.device);
                bytes.extend(room.ledger);
            }
        }
        bytes
    }

    /// Parses a request. `None`: the bytes are none.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Ask> {
        let (kind, rest) = bytes.split_first_chunk()?;
        match (u32::from_ne_bytes(*kind), rest.len()) {
            (ASKS_PIECES, 32) => Some(Ask::Pieces(Request {
                from: u64::from_ne_bytes(rest[..8].try_into().ok()?),
                block: u64::from_ne_bytes(rest[8..16].try_into().ok()?),
                secret: rest[16..].try_into().ok()?,
            })),
            (ASKS_ROOM, 40) => Some(Ask::Room(Room {
                bytes: u64::from_ne_bytes(rest[..8].try_into().ok()?),
                device: rest[8..24].try_into().ok()?,
                ledger: rest[24..].try_into().ok()?,
            })),
            _ => None,
        }
    }
}

/// A piece of memory, with its descriptor.
#[derive(Debug)]
pub struct Piece<F> {
    /// Descriptor of the memory.
    pub file: F,
    /// Bytes before it, with the pieces and the gaps there.
    pub at: u64,
    /// Number of bytes of the memory.
    pub bytes: u64,
}

/// A reply with pieces of a block.
#[derive(Debug)]
pub struct Reply<F> {
    /// Number of pieces that follow these.
    pub rest: u32,
    /// Bytes from the first piece of the block to the end of the last one.
    pub bytes: u64,
    /// Bytes of the first piece before the block.
    pub offset: u64,
    /// Pieces from the requested place on, as many as fit.
    pub pieces: Vec<Piece<F>>,
}

/// Reason for a reply without pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The block does not exist, or no longer.
    Gone,
    /// A call to the exporter's driver failed, with this code.
    Driver(u32),
}

/// First word of a reply that has pieces.
const PIECES: u32 = 0;
/// First word of a reply if the block is gone.
const GONE: u32 = 1;
/// First word of a reply if the driver refused.
const DRIVER: u32 = 2;
/// Bytes of a reply before the sizes of its pieces.
const HEAD: usize = 24;
/// Bytes of a piece in a reply.
const PIECE: usize = 16;
/// Most bytes that a reply has.
pub(crate) const REPLY: usize = HEAD + PIECE * BATCH;

/// Encodes a reply, without its descriptors.
pub(crate) fn encode<F>(reply: &Result<Reply<F>, Refused>) -> Vec<u8> {
    let (kind, rest, bytes, offset) = match reply {
        Ok(reply) => (PIECES, reply.rest, reply.bytes, reply.offset),
        Err(Refused::Gone) => (GONE, 0, 0, 0),
        Err(Refused::Driver(code)) => (DRIVER, *code, 0, 0),
    };
    let mut all = Vec::with_capacity(REPLY);
    all.extend(kind.to_ne_bytes());
    all.extend(rest.to_ne_bytes());
    all.extend(bytes.to_ne_bytes());
    all.extend(offset.to_ne_bytes());
    for piece in reply.iter().flat_map(|reply| &reply.pieces) {
        all.extend(piece.at.to_ne_bytes());
        all.extend(piece.bytes.to_ne_bytes());
    }
    all
}

/// Parses a reply, with its descriptors. `None`: the bytes are none.
pub(crate) fn decode<F>(bytes: &[u8], files: Vec<F>) -> Option<Result<Reply<F>, Refused>> {
    let word = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let long = |at: usize| Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    let rest = word(4)?;
    match word(0)? {
        PIECES => {}
        GONE => return Some(Err(Refused::Gone)),
        // 0 would mean success.
        DRIVER if rest != 0 => return Some(Err(Refused::Driver(rest))),
        _ => return None,
    }
    if bytes.len() != HEAD + PIECE * files.len() {
        return None;
    }
    let pieces = files.into_iter().enumerate().map(|(index, file)| {
        let at = long(HEAD + PIECE * index)?;
        let bytes = long(HEAD + PIECE * index + 8)?;
        Some(Piece { file, at, bytes })
    });
    Some(Ok(Reply {
        rest,
        bytes: long(8)?,
        offset: long(16)?,
        pieces: pieces.collect::<Option<_>>()?,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn requests_are_read_as_they_were_written(secret: Random, block: u64, from: u64) {
            for ask in [Ask::Pieces(Request { secret, block, from }), Ask::Room(Room { device: secret, bytes: block, ledger: secret })] {
                let written = ask.encode();
                prop_assert!(written.len() <= Ask::SIZE);
                prop_assert_eq!(Ask::decode(&written), Some(ask));
                prop_assert_eq!(Ask::decode(&written[..written.len() - 1]), None);
            }
        }

        #[test]
        fn replies_are_read_as_they_were_written(
            rest: u32, bytes: u64, offset: u64,
            sizes in prop::collection::vec(any::<(u64, u64)>(), 0..=BATCH),
        ) {
            let pieces: Vec<_> = sizes.iter().map(|&(at, bytes)| Piece { file: (), at, bytes }).collect();
            let written = encode(&Ok(Reply { rest, bytes, offset, pieces }));
            prop_assert!(written.len() <= REPLY);
            let read = decode(&written, vec![(); sizes.len()]).expect("a reply").expect("pieces");
            prop_assert_eq!((read.rest, read.bytes, read.offset), (rest, bytes, offset));
            prop_assert_eq!(read.pieces.iter().map(|piece| (piece.at, piece.bytes)).collect::<Vec<_>>(), sizes.clone());
            prop_assert!(decode(&written, vec![(); sizes.len() + 1]).is_none());
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(bytes: Vec<u8>, files in 0..40usize) {
            let _ = Ask::decode(&bytes);
            let _ = decode(&bytes, vec![(); files]);
        }
    }

    #[test]
    fn no_refusal_says_that_the_driver_succeeded() {
        let success: Result<Reply<()>, _> = Err(Refused::Driver(0));
        assert!(decode::<()>(&encode(&success), Vec::new()).is_none());
    }

    #[test]
    fn refusals_are_read_as_they_were_written() {
        for refused in [Refused::Gone, Refused::Driver(2)] {
            let read = decode::<()>(&encode::<()>(&Err(refused)), Vec::new());
            assert_eq!(read.expect("a reply").expect_err("a refusal"), refused);
        }
    }
}
