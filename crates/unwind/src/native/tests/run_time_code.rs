//! Tests with code that lies in no object.

use std::ffi::c_void;

use super::{callback, ours};

type Function = extern "C" fn(extern "C" fn(*mut c_void), *mut c_void);

/// Machine code in memory of its own.
struct Code {
    at: *mut c_void,
}

impl Code {
    /// Puts the code before the end of a page, with nothing mapped behind it on purpose.
    fn new(parts: &[&[u8]]) -> Code {
        let bytes = parts.concat();
        // SAFETY: a new mapping of two pages, the second then closed.
        unsafe {
            let at = libc::mmap(
                std::ptr::null_mut(),
                8192,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            assert_ne!(at, libc::MAP_FAILED);
            let start = at.byte_add(4096 - bytes.len());
            start
                .cast::<u8>()
                .copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            assert_eq!(
                libc::mprotect(at, 4096, libc::PROT_READ | libc::PROT_EXEC),
                0
            );
            assert_eq!(libc::mprotect(at.byte_add(4096), 4096, libc::PROT_NONE), 0);
            Code { at: start }
        }
    }

    fn contains(&self, address: u64) -> bool {
        address >> 12 == self.at as u64 >> 12
    }

    /// Returns the frames seen in a callback from this code.
    #[inline(never)]
    fn frames(&self) -> Vec<u64> {
        // SAFETY: each code below follows the calling convention for this signature.
        let function = unsafe { std::mem::transmute::<*mut c_void, Function>(self.at) };
        self.called_by(function)
    }

    #[inline(never)]
    fn called_by(&self, function: Function) -> Vec<u64> {
        let mut seen = Vec::new();
        let mut look = || seen = ours();
        let (call, data) = callback(&mut look);
        function(call, data);
        seen
    }
}

impl Drop for Code {
    fn drop(&mut self) {
        // SAFETY: the two pages mapped above.
        unsafe { libc::munmap((self.at as u64 & !4095) as *mut c_void, 8192) };
        crate::code_changed();
    }
}

/// `mov rcx, rdi; mov rdi, rsi`
const ARGUMENTS: &[u8] = &[0x48, 0x89, 0xf9, 0x48, 0x89, 0xf7];
const CALL_RCX: &[u8] = &[0xff, 0xd1];
/// `push rbp; mov rbp, rsp`
const FRAME: &[u8] = &[0x55, 0x48, 0x89, 0xe5];

extern "C" fn direct(call: extern "C" fn(*mut c_void), data: *mut c_void) {
    call(data);
    std::hint::black_box(());
}

/// Checks that a walk passes the code like a Rust function in its place.
fn passes(code: &Code) {
    #[inline(never)]
    fn both(code: &Code) -> Vec<Vec<u64>> {
        // SAFETY: as in `frames`.
        let function = unsafe { std::mem::transmute::<*mut c_void, Function>(code.at) };
        // A loop, so that both are called from the same place.
        let mut seen = Vec::new();
        for function in std::hint::black_box(vec![direct, function]) {
            seen.push(code.called_by(function));
        }
        seen
    }
    let seen = both(code);
    let (expected, seen) = (&seen[0], &seen[1]);
    assert!(expected.len() > 10);
    assert_eq!(expected.len(), seen.len(), "{expected:x?} {seen:x?}");
    let at = seen.iter().position(|&f| code.contains(f)).unwrap();
    assert_eq!(expected[..at], seen[..at]);
    assert_eq!(expected[at + 1..], seen[at + 1..]);
}

#[test]
fn trampolines_of_cpython() {
    // sub rsp, 8; call rcx; add rsp, 8; ret
    passes(&Code::new(&[
        ARGUMENTS,
        &[0x48, 0x83, 0xec, 0x08],
        CALL_RCX,
        &[0x48, 0x83, 0xc4, 0x08, 0xc3],
    ]));
    passes(&Code::new(&[ARGUMENTS, FRAME, CALL_RCX, &[0x5d, 0xc3]]));
}

#[test]
fn a_frame_pointer_is_believed() {
    // sub rsp, 32; call rcx; leave; ret
    passes(&Code::new(&[
        ARGUMENTS,
        FRAME,
        &[0x48, 0x83, 0xec, 0x20],
        CALL_RCX,
        &[0xc9, 0xc3],
    ]));
}

#[test]
fn a_wrong_frame_pointer_ends_the_walk() {
    // Values in rbp: nothing; the stack pointer; a word of the stack that is no code; text.
    let values: [&[u8]; 4] = [
        &[0x31, 0xed],                               // xor ebp, ebp
        &[0x48, 0x89, 0xe5],                         // mov rbp, rsp
        &[0x48, 0x8d, 0x6c, 0x24, 0x10],             // lea rbp, [rsp+16]
        &[0x48, 0x8d, 0x2d, 0x00, 0x00, 0x00, 0x00], // lea rbp, [rip]
    ];
    for value in values {
        // push rbp; sub rsp, 48; mov [rsp+8], rdi (no return address: the start of a function);
        // ...; call rcx; add rsp, 48; pop rbp; ret
        let code = Code::new(&[
            &[0x55, 0x48, 0x83, 0xec, 0x30],
            &[0x48, 0x89, 0x7c, 0x24, 0x08],
            &[0x48, 0xc7, 0x44, 0x24, 0x18, 1, 0, 0, 0],
            ARGUMENTS,
            value,
            CALL_RCX,
            &[0x48, 0x83, 0xc4, 0x30, 0x5d, 0xc3],
        ]);
        let seen = code.frames();
        let last = seen.last().copied().unwrap();
        assert!(code.contains(last), "{value:x?}: {seen:x?}");
    }
}

#[test]
fn memory_that_cannot_be_read_is_no_code() {
    use crate::native::{code, compile, rule::Rule, step::Arrival};
    let code = Code::new(&[CALL_RCX, &[0x5d, 0xc3]]);
    let page = code.at as u64 & !4095;
    // Addresses behind the code's page, and in no page.
    for address in [page + 4096, page + 5000, 0x1000, u64::MAX, 1 << 63] {
        let rule = compile::rule(address, Arrival::Return);
        assert_eq!(rule, Rule::NOT_CODE, "{address:x}");
    }
    assert!(code::follows_call(page + 4096 - 2));
    assert!(!code::follows_call(page + 4096 - 1));
    let first = Code::new(&[CALL_RCX, &[0x90; 4094]]);
    assert!(code::follows_call(first.at as u64 + 2));
}
