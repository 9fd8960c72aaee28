//! Handles: numbers that look like addresses, never used twice in a process.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Handles are spread well enough already; multiplying moves the low bits up.
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

/// Objects of one kind by their handles.
pub struct Handles<T> {
    next: u64,
    all: HashMap<u64, T, BuildHasherDefault<HandleHasher>>,
}

impl<T> Handles<T> {
    /// None yet; `kind` makes the handles of one kind differ from those of others.
    pub fn new(kind: u8) -> Self {
        Handles {
            next: u64::from(kind) << 40,
            all: HashMap::default(),
        }
    }

    /// A handle for what `make` makes of it.
    pub fn insert_with(&mut self, make: impl FnOnce(u64) -> T) -> u64 {
        self.next += 0x100;
        let handle = self.next;
        self.all.insert(handle, make(handle));
        handle
    }

    /// A handle for `object`.
    pub fn insert(&mut self, object: T) -> u64 {
        self.insert_with(|_| object)
    }

    /// A handle for an object that is made later, or again and again: a primary context.
    pub fn reserve(&mut self) -> u64 {
        self.next += 0x100;
        self.next
    }

    /// Gives a reserved handle its object.
    pub fn insert_at(&mut self, handle: u64, object: T) {
        self.all.insert(handle, object);
    }

    /// The object, or the driver's error for a handle that is not one.
    pub fn get(&self, handle: u64) -> crate::codes::Outcome<&T> {
        self.all.get(&handle).ok_or(crate::codes::INVALID_HANDLE)
    }

    /// The object, to change, or the driver's error for a handle that is not one.
    pub fn get_mut(&mut self, handle: u64) -> crate::codes::Outcome<&mut T> {
        self.all
            .get_mut(&handle)
            .ok_or(crate::codes::INVALID_HANDLE)
    }

    /// Takes the object away.
    pub fn remove(&mut self, handle: u64) -> crate::codes::Outcome<T> {
        self.all.remove(&handle).ok_or(crate::codes::INVALID_HANDLE)
    }

    /// Whether there is such a handle.
    pub fn contains(&self, handle: u64) -> bool {
        self.all.contains_key(&handle)
    }

    /// All of them, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        self.all.iter().map(|(handle, object)| (*handle, object))
    }

    /// All of them, in no order, to change.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u64, &mut T)> {
        self.all
            .iter_mut()
            .map(|(handle, object)| (*handle, object))
    }

    /// Takes away those that `keep` says no to.
    pub fn retain(&mut self, keep: impl FnMut(&u64, &mut T) -> bool) {
        self.all.retain(keep);
    }
}
