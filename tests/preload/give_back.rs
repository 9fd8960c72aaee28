//! Cached memory is freed before any call reports out-of-memory.

use gpushim_trace::Kind;

use crate::support::{Run, program};

/// A request of this kind, with most of the memory in the cache, succeeds as it does natively.
fn gives_back(way: &str) {
    let run = Run::new(program("giveback"))
        .arg(way)
        .env("STANDIN_MEMORY", "1G")
        .env("GPUSHIM_CACHE_MAX", "1G")
        .env("GPUSHIM_DECAY", "off");
    let (native, shim) = run.both();
    assert!(
        native.told().ends_with(&format!("{way}: 0\n")),
        "the test asks for what there is not"
    );
    assert!(
        shim.note("cached") >= 700 << 20,
        "{way}: only {} bytes were cached",
        shim.note("cached")
    );
    let refusals = shim.trace().of(Kind::OutOfMemory);
    assert!(
        refusals.is_empty(),
        "{way}: recorded, but the program never saw it: {refusals:?}"
    );
}

macro_rules! ways {
    ($($name:ident: $way:literal;)*) => {
        $(#[test]
        fn $name() {
            gives_back($way);
        })*
    };
}

ways! {
    for_another_size: "same";
    for_another_context: "context";
    for_managed_memory: "managed";
    for_pitched_memory: "pitched";
    for_an_array: "array";
    for_a_3d_array: "array3d";
    for_a_mipmapped_array: "mipmapped";
    for_mem_create: "vmm";
    for_stream_ordered_memory: "async";
    for_memory_of_a_pool: "pool";
    for_modules: "module";
    for_a_graph: "graph";
    for_streams: "stream";
    for_a_new_context: "new-context";
}
