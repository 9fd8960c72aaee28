//! Tests of objects that are loaded and unloaded, and of their descriptions.

use std::sync::Mutex;

use super::{Library, walked};
use crate::native::rule::{Cfa, Rule, SavedBp};
use crate::native::step::Arrival;
use crate::native::{compile, object};
use crate::{Module, module_of, on_new_module};

const SOURCE: &str = r#"
#include <string.h>
typedef void (*visit)(void *);
unsigned long call(visit f, void *p, unsigned long n) {
    volatile char room[ROOM];
    memset((char *)room, n, n);
    f(p);
    return room[n];
}
"#;

fn library(room: usize) -> Library {
    let room = format!("-DROOM={room}");
    Library::new(SOURCE, &[&room, BUILD_ID])
}

const BUILD_ID: &str = "-Wl,--build-id=0x000102030405060708090a0b0c0d0e0f10111213";

#[test]
fn other_code_in_the_same_place() {
    // The frames have different sizes, but the instructions are the same. Another thread may map
    // something in between.
    let same_place = (0..200).any(|_| {
        let mut places = [40, 104].map(|room| {
            let library = library(room);
            let mut place = 0;
            library.call(c"call", 3, || place = walked()[2]);
            place
        });
        places.sort_unstable();
        places[0] == places[1]
    });
    assert!(same_place);
}

#[test]
fn a_module_is_described_and_announced() {
    static SEEN: Mutex<Vec<Module>> = Mutex::new(Vec::new());
    on_new_module(|module| SEEN.lock().unwrap().push(module.clone()));
    let library = library(40);
    let address = library.symbol(c"call") as u64;
    let module = module_of(address).unwrap();
    let seen = || SEEN.lock().unwrap().contains(&module);
    assert!(!seen());
    library.call(c"call", 3, || drop(walked()));
    assert!(seen());

    assert!(module.path.ends_with("t.so"), "{module:?}");
    let id: Vec<u8> = (0..20).collect();
    assert_eq!(module.build_id.as_bytes(), id);
    assert!(module.begin <= address && address < module.end);
    // A shared object is linked for address 0.
    assert_eq!(module.bias, module.begin);
}

#[test]
fn the_executable_and_the_c_library() {
    let own = module_of(the_executable_and_the_c_library as *const () as u64).unwrap();
    assert_eq!(own.path, std::env::current_exe().unwrap());
    let libc = module_of(libc::getpid as *const () as u64).unwrap();
    assert!(libc.path.to_str().unwrap().contains("libc.so"));
    assert!(!libc.build_id.as_bytes().is_empty());
    let local = 0u8;
    for address in [0, 0x1000, u64::MAX, &raw const local as u64] {
        assert_eq!(module_of(address), None);
    }
}

/// Checks that both ways to find an object agree.
#[test]
fn both_ways_to_find_an_object() {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let page_end = |address: u64| address.next_multiple_of(4096);
    let mut objects = 0;
    // Libraries of other tests are left out: they may be unloaded meanwhile.
    let code = |l: &&str| l.contains(" r-xp ") && !l.ends_with("/t.so");
    for line in maps.lines().filter(code) {
        let (range, _) = line.split_once(' ').unwrap();
        let (start, end) = range.split_once('-').unwrap();
        let [start, end] = [start, end].map(|hex| u64::from_str_radix(hex, 16).unwrap());
        // The first and the last page may be code only in part.
        let address = start.midpoint(end);
        let (Some(a), Some(b)) = (object::find(address), object::by_iteration(address)) else {
            let found = [object::find(address), object::by_iteration(address)];
            assert!(found.iter().all(Option::is_none), "{line}");
            continue;
        };
        objects += 1;
        assert_eq!((a.begin, a.bias), (b.begin, b.bias), "{line}");
        assert_eq!(page_end(a.end), page_end(b.end), "{line}");
        assert_eq!(a.name(), b.name(), "{line}");
        assert_eq!(a.segments().len(), b.segments().len(), "{line}");
        assert!(a.is_code(address) && b.is_code(address), "{line}");
        assert!(!a.is_code(a.end) && !a.is_code(a.begin.wrapping_sub(1)));
    }
    // There are at least the executable, the dynamic linker, the C library and the vDSO.
    assert!(objects >= 4, "{maps}");
}

/// Walks from a stub for lazy binding, which pushes a number after 11 bytes: `jmp *slot; push 0;
/// jmp first`.
#[test]
fn stubs_for_lazy_binding() {
    let library = Library::new(SOURCE, &["-DROOM=5000", "-Wl,-z,lazy"]);
    let call = library.symbol(c"call") as u64;
    let object = object::find(call).unwrap();
    let code = object
        .segments()
        .iter()
        .find(|s| s.p_flags & libc::PF_X != 0);
    let start = object.address_of(code.unwrap());
    let is_stub = |b: &[u8]| b.starts_with(&[0xff, 0x25]) && b[6..] == [0x68, 0, 0, 0, 0, 0xe9];
    let code = object.bytes(start).unwrap();
    let stub = code.windows(12).position(is_stub).unwrap() as u64 + start;
    for (at, size) in [(0, 8), (6, 8), (11, 16)] {
        let rule = compile::rule(stub + at, Arrival::Interrupted);
        assert_eq!(rule, Rule::caller(Cfa::Sp(size), SavedBp::Same));
    }
}
