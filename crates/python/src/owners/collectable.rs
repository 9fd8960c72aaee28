//! Objects that only unreachable objects refer to. The collector will free them, unless C++ keeps
//! them.
//!
//! This is the collector's own rule: references that objects have from each other are subtracted
//! from their counts. An object with a count above 0 is held from outside, and so are all objects
//! that it refers to.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;

use super::MethodDef;
use super::api::{Api, Object, TYPE, WITH_ARGUMENTS, word};

/// `ob_refcnt` of an object: its lower half has the count, also where an object is immortal (3.12)
/// and where the upper half has flags (3.14).
const COUNT: usize = 0;
/// `tp_flags` of a type (Include/cpython/object.h).
const FLAGS: usize = 168;
/// `tp_traverse` of a type.
const TRAVERSE: usize = 184;
/// `Py_TPFLAGS_HAVE_GC` and `Py_TPFLAGS_LIST_SUBCLASS`, which the type of a list has.
const OF_A_LIST: u64 = 1 << 14 | 1 << 25;
/// Number of objects between two checks of the time.
const CHUNK: usize = 1 << 12;

/// `visitproc` and `traverseproc` (Include/object.h).
type Visit = unsafe extern "C" fn(Object, *mut c_void) -> c_int;
type Traverse = unsafe extern "C" fn(Object, Visit, *mut c_void) -> c_int;

pub static METHOD: MethodDef = MethodDef {
    name: c"collectable".as_ptr(),
    function: collectable,
    flags: WITH_ARGUMENTS,
    about: ptr::null(),
};

/// The method `collectable(get_objects, types, microseconds)`. It returns a tuple of the objects of
/// these types that only unreachable objects refer to, empty if the time was up. `get_objects`
/// gives a list of all objects that the collector knows; it is freed before another thread can run.
///
/// # Safety
/// Called by the interpreter, with a tuple.
unsafe extern "C" fn collectable(_: *mut c_void, arguments: *mut c_void) -> *mut c_void {
    let Some(api) = Api::shared() else {
        return ptr::null_mut();
    };
    // SAFETY: the interpreter calls with the GIL; the walk gives a list, a tuple of types and a
    // number.
    unsafe {
        let [get_objects, types, time] = [0, 1, 2].map(|place| (api.tuple_get)(arguments, place));
        if get_objects.is_null() || types.is_null() || time.is_null() {
            return ptr::null_mut();
        }
        let objects = api.call(get_objects, api.tuple(&[]));
        if objects.is_null() {
            return objects;
        }
        let micros = u64::try_from((api.as_long)(time)).unwrap_or(0);
        let types: Vec<Object> = (0..(api.tuple_size)(types))
            .map(|place| (api.tuple_get)(types, place))
            .collect();
        let heap = is_laid_out(objects).then(|| {
            let places = 0..(api.list_size)(objects);
            Heap::of(places.map(|place| (api.list_get)(objects, place)).collect())
        });
        let free = heap.and_then(|heap| heap.unreachable(Duration::from_micros(micros)));
        let free = free.unwrap_or_default().into_iter();
        let free = free.filter(|object| types.contains(&word(*object, TYPE)));
        let free: Vec<Object> = free.map(|object| api.more(object)).collect();
        api.drop(objects);
        api.tuple(&free)
    }
}

/// All objects that the collector knows, alive as long as their list.
struct Heap {
    objects: Vec<Object>,
    places: FxHashMap<usize, u32>,
}

/// Visit of an object's referents.
struct Visited<'a, F: FnMut(u32)> {
    places: &'a FxHashMap<usize, u32>,
    act: F,
}

impl Heap {
    fn of(objects: Vec<Object>) -> Heap {
        let places = objects.iter().zip(0..);
        let places = places
            .map(|(object, place)| (*object as usize, place))
            .collect();
        Heap { objects, places }
    }

    /// Returns the objects that nothing outside refers to. `None` if the time was up.
    ///
    /// # Safety
    /// The thread holds the GIL, and the objects are alive.
    unsafe fn unreachable(&self, time: Duration) -> Option<Vec<Object>> {
        let start = Instant::now();
        let is_late = |done: usize| done.is_multiple_of(CHUNK) && start.elapsed() > time;
        // One reference is the list's.
        // SAFETY: the objects are alive.
        let count = |object: &Object| unsafe { (word(*object, COUNT) as u32).wrapping_sub(1) };
        let mut counts: Vec<u32> = self.objects.iter().map(count).collect();
        for (done, object) in self.objects.iter().enumerate() {
            if is_late(done) {
                return None;
            }
            let taken_off = |place: u32| {
                if let Some(count) = counts.get_mut(place as usize) {
                    *count = count.saturating_sub(1);
                }
            };
            // SAFETY: as above.
            unsafe { self.visit(*object, taken_off) };
        }
        let mut held: Vec<u32> = (0..)
            .zip(&counts)
            .filter(|(_, count)| **count > 0)
            .map(|(place, _)| place)
            .collect();
        let mut done = 0;
        while let Some(place) = held.pop() {
            done += 1;
            if is_late(done) {
                return None;
            }
            let reached = |place: u32| {
                if let Some(count @ 0) = counts.get_mut(place as usize) {
                    *count = 1;
                    held.push(place);
                }
            };
            let object = self.objects.get(place as usize)?;
            // SAFETY: as above.
            unsafe { self.visit(*object, reached) };
        }
        let free = self
            .objects
            .iter()
            .zip(&counts)
            .filter(|(_, count)| **count == 0);
        Some(free.map(|(object, _)| *object).collect())
    }

    /// Calls `act` with the place of each object of the list that this one refers to, as often as
    /// it does.
    ///
    /// # Safety
    /// As [`Heap::unreachable`].
    unsafe fn visit<F: FnMut(u32)>(&self, object: Object, act: F) {
        let mut visited = Visited {
            places: &self.places,
            act,
        };
        // SAFETY: the collector traverses each object of the list by this function of its type.
        unsafe {
            let traverse = word(word(object, TYPE), TRAVERSE);
            if !traverse.is_null() {
                let traverse = std::mem::transmute::<Object, Traverse>(traverse);
                traverse(object, on_visit::<F>, ptr::from_mut(&mut visited).cast());
            }
        }
    }
}

/// True if the type of a list has its flags and its traversal at the expected offsets.
///
/// # Safety
/// The list is alive.
unsafe fn is_laid_out(list: Object) -> bool {
    // SAFETY: the caller promises it; a type lives as long as its objects.
    unsafe {
        let of_list = word(list, TYPE);
        let flags = word(of_list, FLAGS) as u64;
        flags & OF_A_LIST == OF_A_LIST && !word(of_list, TRAVERSE).is_null()
    }
}

/// # Safety
/// `visited` is the one that [`Heap::visit`] gave.
unsafe extern "C" fn on_visit<F: FnMut(u32)>(object: Object, visited: *mut c_void) -> c_int {
    // SAFETY: the caller promises it, and it is used by one visit at a time.
    let visited = unsafe { &mut *visited.cast::<Visited<'_, F>>() };
    if let Some(place) = visited.places.get(&(object as usize)) {
        (visited.act)(*place);
    }
    0
}
