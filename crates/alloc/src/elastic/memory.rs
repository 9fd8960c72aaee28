//! Physical memory, and the pieces that it is mapped at.
//!
//! Memory may be mapped at several pieces, and one of them has it at a time. So a step that repeats
//! finds the memory of each tensor mapped already, and calls nothing.

use super::held_bytes::Held;
use super::pages::Handle;
use super::piece::{self, Piece, SIZES};
use crate::slab::{Id, Item, Link, Linked, List, NIL, Slab, UNLINKED};

/// One handle of the driver.
pub(super) struct Memory {
    pub handle: Handle,
    /// Addresses of the pieces that it is mapped at.
    pub places: Vec<u64>,
    /// Address of the piece that has it. `None`: it is spare.
    pub owner: Option<u64>,
    /// Address of the piece that had it last.
    pub last: u64,
    /// Time at which that piece was left.
    pub left: u64,
    /// The stream that ordered all work of that piece's tensors, if there was one.
    pub stream: Option<u8>,
    link: Link,
}

impl Item for Memory {
    fn spare() -> Self {
        Memory {
            handle: Handle {
                number: 0,
                bytes: 0,
                is_host: false,
            },
            places: Vec::new(),
            owner: None,
            last: 0,
            left: 0,
            stream: None,
            link: UNLINKED,
        }
    }
}

impl Linked for Memory {
    type Chain = ();

    fn link(&mut self, (): ()) -> &mut Link {
        &mut self.link
    }
}

impl Memory {
    /// Its bytes if it is memory of the device, else 0.
    pub fn on_device(&self) -> u64 {
        if self.handle.is_host {
            0
        } else {
            self.handle.bytes
        }
    }
}

/// All memory of a device's segments.
pub(super) struct Memories {
    all: Slab<Memory>,
    /// Spare memory of the device, by size, in the order in which it was left.
    spare: [List; SIZES],
    /// Spare memory of the host.
    spare_of_host: List,
    pub held: Held,
}

impl Memories {
    pub fn new() -> Self {
        Memories {
            all: Slab::new(),
            spare: [List::EMPTY; SIZES],
            spare_of_host: List::EMPTY,
            held: Held::default(),
        }
    }

    pub fn at(&self, id: Id) -> &Memory {
        self.all.at(id)
    }

    pub fn at_mut(&mut self, id: Id) -> &mut Memory {
        self.all.at_mut(id)
    }

    /// Returns all memory, spare or not.
    pub fn all(&self) -> impl Iterator<Item = &Memory> {
        // Destroyed memory has no bytes.
        self.all.all().filter(|memory| memory.handle.bytes > 0)
    }

    /// Adds memory that the driver made. `None`: there is too much of it to count.
    pub fn made(&mut self, handle: Handle) -> Option<Id> {
        let memory = Memory {
            handle,
            ..Memory::spare()
        };
        let bytes = memory.on_device();
        let id = self.all.insert(memory)?;
        self.held.now += bytes;
        Some(id)
    }

    /// Removes memory that the driver has destroyed. No piece may have it, and it may be in no
    /// list.
    pub fn destroyed(&mut self, id: Id) {
        self.held.now -= self.all.at(id).on_device();
        *self.all.at_mut(id) = Memory::spare();
        self.all.remove(id);
    }

    /// Gives memory to the piece at an address. It may be in no list.
    pub fn own(&mut self, id: Id, address: u64) {
        let memory = self.all.at_mut(id);
        memory.owner = Some(address);
        self.held.keep(memory.on_device() as i64);
    }

    /// Takes memory from its piece. It may be in no list.
    pub fn disown(&mut self, id: Id) {
        let memory = self.all.at_mut(id);
        if let Some(owner) = memory.owner.take() {
            memory.last = owner;
            self.held.keep(-(memory.on_device() as i64));
        }
    }

    /// Makes memory spare that was left at this time, after work that this stream orders.
    pub fn release(&mut self, id: Id, left: u64, stream: Option<u8>) {
        self.disown(id);
        let memory = self.all.at_mut(id);
        (memory.left, memory.stream) = (left, stream);
        let handle = memory.handle;
        list(&mut self.spare, &mut self.spare_of_host, handle).push(&mut self.all, (), id);
    }

    /// Makes the memory of a piece spare, as of the time at which its last tensor was freed.
    pub fn release_from(&mut self, piece: &mut Piece) {
        piece.owns_memory = false;
        self.release(piece.memory, piece.left, piece.stream);
    }

    /// Takes memory out of its list: it is no longer spare.
    pub fn unlink(&mut self, id: Id) {
        let handle = self.all.at(id).handle;
        list(&mut self.spare, &mut self.spare_of_host, handle).unlink(&mut self.all, (), id);
    }

    /// Spare memory of the device of this [size](SIZES), in the order in which it was left.
    pub fn spare_of(&self, size: usize) -> impl Iterator<Item = (Id, &Memory)> {
        self.iter(self.spare[size])
    }

    /// All spare memory of the device.
    pub fn spare(&self) -> impl Iterator<Item = (Id, &Memory)> {
        self.spare.iter().flat_map(|list| self.iter(*list))
    }

    /// Spare memory that was left first, of the device or the host.
    pub fn first_left(&self) -> Option<(Id, &Memory)> {
        let lists = self.spare.iter().chain([&self.spare_of_host]);
        let firsts = lists.filter_map(|list| self.iter(*list).next());
        firsts.min_by_key(|(_, memory)| memory.left)
    }

    fn iter(&self, list: List) -> impl Iterator<Item = (Id, &Memory)> {
        let mut next = list.oldest;
        std::iter::from_fn(move || {
            let id = (next != NIL).then_some(next)?;
            let memory = self.all.at(id);
            next = memory.link.newer;
            Some((id, memory))
        })
    }
}

fn list<'a>(spare: &'a mut [List; SIZES], of_host: &'a mut List, handle: Handle) -> &'a mut List {
    if handle.is_host {
        of_host
    } else {
        &mut spare[piece::size_of(handle)]
    }
}
