//! Recordings that wrap another one.

use std::path::Path;
use std::sync::Arc;

use super::{Caching, Coverage, Gpu, Names, NumberedRequest, Owners, Process, Recording, Way};
use gpushim_trace::{Layer, LiveBlock, Record, Timeline};

/// Writes methods that pass their arguments to the same method of something else.
macro_rules! forward {
    ($self:ident to $to:expr, $trait:ident: $(
        $(#[$doc:meta])*
        fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty;
    )*) => { $(
        $(#[$doc])*
        fn $name(&$self $(, $argument: $type)*) -> $result {
            $trait::$name($to $(, $argument)*)
        }
    )* };
}

/// A recording that differs from another one in some of these methods, and in nothing else.
pub trait Decorator: Send + Sync {
    /// Returns the recording that answers all other questions.
    fn inner(&self) -> &dyn Recording;

    forward! { self to self.inner(), Recording:
        /// Answers [`Recording::path`].
        fn path() -> &Path;
        /// Answers [`Recording::problems`].
        fn problems() -> Vec<String>;
        /// Answers [`Recording::events`].
        fn events() -> Box<dyn Iterator<Item = Record> + Send + '_>;
        /// Answers [`Recording::timeline`].
        fn timeline() -> Timeline;
        /// Answers [`Recording::numbered`].
        fn numbered() -> Option<Box<dyn Iterator<Item = NumberedRequest> + '_>>;
        /// Answers [`Recording::open_ranges`].
        fn open_ranges(stack: u32) -> Vec<String>;
        /// Answers [`Recording::frames`].
        fn frames(stack: u32) -> u64;
        /// Answers [`Recording::way`].
        fn way(stack: u32) -> Way;
        /// Answers [`Recording::owners`].
        fn owners() -> Arc<Owners>;
        /// Answers [`Recording::names`].
        fn names() -> Box<dyn Names + '_>;
    }
}

// The lint finds a method that would be answered by its default and not by the inner recording.
#[deny(clippy::missing_trait_methods)]
impl<T: Decorator> Recording for T {
    forward! { self to self, Decorator:
        fn path() -> &Path;
        fn problems() -> Vec<String>;
        fn events() -> Box<dyn Iterator<Item = Record> + Send + '_>;
        fn timeline() -> Timeline;
        fn numbered() -> Option<Box<dyn Iterator<Item = NumberedRequest> + '_>>;
        fn open_ranges(stack: u32) -> Vec<String>;
        fn frames(stack: u32) -> u64;
        fn way(stack: u32) -> Way;
        fn owners() -> Arc<Owners>;
        fn names() -> Box<dyn Names + '_>;
    }
    forward! { self to self.inner(), Recording:
        fn format() -> String;
        fn wall_ns() -> u64;
        fn facts() -> Vec<(String, String)>;
        fn process() -> Process;
        fn has_times() -> bool;
        fn gpu(ordinal: u8) -> Option<Gpu>;
        fn coverage() -> Coverage;
        fn live() -> Option<Vec<LiveBlock>>;
        fn live_bytes(layer: Layer, device: u8) -> Option<u64>;
        fn text(id: u64) -> Option<String>;
        fn function(number: u64) -> Option<[String; 2]>;
        fn stream(record: &Record) -> Option<u64>;
        fn caching() -> Option<&Caching>;
        fn is_one_moment() -> bool;
        fn has_tensors() -> bool;
    }
}
