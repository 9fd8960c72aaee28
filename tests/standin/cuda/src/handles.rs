//! Handles: numbers that resemble addresses and are never used twice in a process.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Hasher of handles. They are spread well enough: the multiplication only moves low bits up.
#[derive(Default)]
pub struct HandleHasher(u64);

impl Hasher for HandleHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }
    fn write_u64(&mut self, value: u64) {
        // 2^64 divided by the golden ratio.
        let product = (self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = product.rotate_left(32);
    }
}

/// Objects of one kind, by their handles.
pub struct Handles<T> {
    next: u64,
    all: HashMap<u64, T, BuildHasherDefault<HandleHasher>>,
}

impl<T> Handles<T> {
    /// Returns an empty table. Tables of another `kind` have other handles.
    pub fn new(kind: u8) -> Self {
        Handles {
            next: u64::from(kind) << 40,
            all: HashMap::default(),
        }
    }

    /// Returns a new handle for the object that `make` makes from the handle.
    pub fn insert_with(&mut self, make: impl FnOnce(u64) -> T) -> u64 {
        self.next += 0x100;
        let handle = self.next;
        self.all.insert(handle, make(handle));
        handle
    }

    /// Returns a new handle for `object`.
    pub fn insert(&mut self, object: T) -> u64 {
        self.insert_with(|_| object)
    }

    /// Reserves a handle for an object made later or repeatedly, such as a primary context.
    pub fn reserve(&mut self) -> u64 {
        self.next += 0x100;
        self.next
    }

    /// Stores the object of a reserved handle.
    pub fn insert_at(&mut self, handle: u64, object: T) {
        self.all.insert(handle, object);
    }

    /// Returns the object. An unknown handle is the driver's `INVALID_HANDLE`.
    pub fn get(&self, handle: u64) -> crate::codes::Outcome<&T> {
        self.all.get(&handle).ok_or(crate::codes::INVALID_HANDLE)
    }

    /// Returns the object for a change. An unknown handle is the driver's `INVALID_HANDLE`.
    pub fn get_mut(&mut self, handle: u64) -> crate::codes::Outcome<&mut T> {
        self.all
            .get_mut(&handle)
            .ok_or(crate::codes::INVALID_HANDLE)
    }

    /// Removes the object and returns it.
    pub fn remove(&mut self, handle: u64) -> crate::codes::Outcome<T> {
        self.all.remove(&handle).ok_or(crate::codes::INVALID_HANDLE)
    }

    /// True if the handle has an object.
    pub fn contains(&self, handle: u64) -> bool {
        self.all.contains_key(&handle)
    }

    /// Returns all handles with their objects, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        self.all.iter().map(|(handle, object)| (*handle, object))
    }

    /// Returns all handles with their objects for a change, in no order.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u64, &mut T)> {
        self.all
            .iter_mut()
            .map(|(handle, object)| (*handle, object))
    }

    /// Removes the objects for which `keep` returns false.
    pub fn retain(&mut self, keep: impl FnMut(&u64, &mut T) -> bool) {
        self.all.retain(keep);
    }
}
