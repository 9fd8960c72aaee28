//! Recordings that wrap another one.

use std::path::Path;
use std::sync::Arc;

use super::{Caching, Coverage, Gpu, Names, Owners, Process, Recording, Way};
use gpushim_trace::{Layer, LiveBlock, Record, Timeline};

/// Writes [`Decorator`] with a method for each of the first list, and [`Recording`] for all that
/// implement it. Methods of the second list always pass their arguments to the inner recording.
macro_rules! decorator {
    (
        may differ: $(fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*
        pass on: $(fn $same:ident($($passed:ident: $its:ty),*) -> $of:ty;)*
    ) => {
        /// A recording that differs from another one in some of these methods, and in nothing else.
        pub trait Decorator: Send + Sync {
            /// Returns the recording that answers all other questions.
            fn inner(&self) -> &dyn Recording;

            $(
                #[doc = concat!("Answers [`Recording::", stringify!($name), "`].")]
                fn $name(&self $(, $argument: $type)*) -> $result {
                    self.inner().$name($($argument),*)
                }
            )*
        }

        // The lint finds a method that would be answered by its default and not by the inner
        // recording.
        #[deny(clippy::missing_trait_methods)]
        impl<T: Decorator> Recording for T {
            $(
                fn $name(&self $(, $argument: $type)*) -> $result {
                    Decorator::$name(self $(, $argument)*)
                }
            )*
            $(
                fn $same(&self $(, $passed: $its)*) -> $of {
                    self.inner().$same($($passed),*)
                }
            )*
        }
    };
}

decorator! {
    may differ:
        fn path() -> &Path;
        fn problems() -> Vec<String>;
        fn coverage() -> Coverage;
        fn events() -> Box<dyn Iterator<Item = Record> + Send + '_>;
        fn timeline() -> Timeline;
        fn open_ranges(stack: u32) -> Vec<String>;
        fn frames(stack: u32) -> u64;
        fn way(stack: u32) -> Way;
        fn owners() -> Arc<Owners>;
        fn names() -> Box<dyn Names + '_>;
    pass on:
        fn format() -> String;
        fn wall_ns() -> u64;
        fn facts() -> Vec<(String, String)>;
        fn process() -> Process;
        fn has_times() -> bool;
        fn gpu(ordinal: u8) -> Option<Gpu>;
        fn live() -> Option<Vec<LiveBlock>>;
        fn live_bytes(layer: Layer, device: u8) -> Option<u64>;
        fn text(id: u64) -> Option<String>;
        fn function(number: u64) -> Option<[String; 2]>;
        fn stream(record: &Record) -> Option<u64>;
        fn caching() -> Option<&Caching>;
        fn is_one_moment() -> bool;
        fn has_tensors() -> bool;
}
