//! Any bytes as a trace file.
#![no_main]

#[path = "../read_all.rs"]
mod read_all;

libfuzzer_sys::fuzz_target!(|content: &[u8]| {
    read_all::read_all(content);
});
