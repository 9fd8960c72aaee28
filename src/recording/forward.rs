//! Recordings that stand before another one.

/// Writes methods of [`Recording`](super::Recording) that ask the recording in a field.
macro_rules! forward {
    ($field:ident: $($method:ident)*) => {
        $($crate::recording::forward!(@ $field $method);)*
    };
    (@ $field:ident events) => {
        fn events(&self) -> Box<dyn Iterator<Item = gpushim_trace::Record> + Send + '_> {
            self.$field.events()
        }
    };
    (@ $field:ident format) => {
        fn format(&self) -> String {
            self.$field.format()
        }
    };
    (@ $field:ident wall_ns) => {
        fn wall_ns(&self) -> u64 {
            self.$field.wall_ns()
        }
    };
    (@ $field:ident facts) => {
        fn facts(&self) -> Vec<(String, String)> {
            self.$field.facts()
        }
    };
    (@ $field:ident problems) => {
        fn problems(&self) -> Vec<String> {
            self.$field.problems()
        }
    };
    (@ $field:ident coverage) => {
        fn coverage(&self) -> $crate::recording::Coverage {
            self.$field.coverage()
        }
    };
    (@ $field:ident live) => {
        fn live(&self) -> Option<Vec<gpushim_trace::LiveBlock>> {
            self.$field.live()
        }
    };
    (@ $field:ident live_bytes) => {
        fn live_bytes(&self, layer: gpushim_trace::Layer, device: u8) -> Option<u64> {
            self.$field.live_bytes(layer, device)
        }
    };
    (@ $field:ident text) => {
        fn text(&self, id: u64) -> Option<String> {
            self.$field.text(id)
        }
    };
    (@ $field:ident open_ranges) => {
        fn open_ranges(&self, stack: u32) -> Vec<String> {
            self.$field.open_ranges(stack)
        }
    };
    (@ $field:ident frames) => {
        fn frames(&self, stack: u32) -> u64 {
            self.$field.frames(stack)
        }
    };
    (@ $field:ident names) => {
        fn names(&self) -> Box<dyn $crate::recording::Names + '_> {
            self.$field.names()
        }
    };
    (@ $field:ident stream) => {
        fn stream(&self, record: &gpushim_trace::Record) -> Option<u64> {
            self.$field.stream(record)
        }
    };
    (@ $field:ident caching) => {
        fn caching(&self) -> Option<&$crate::recording::Caching> {
            self.$field.caching()
        }
    };
    (@ $field:ident is_one_moment) => {
        fn is_one_moment(&self) -> bool {
            self.$field.is_one_moment()
        }
    };
    (@ $field:ident has_tensors) => {
        fn has_tensors(&self) -> bool {
            self.$field.has_tensors()
        }
    };
    (@ $field:ident fact) => {
        fn fact(&self, key: &str) -> Option<String> {
            self.$field.fact(key)
        }
    };
    (@ $field:ident path) => {
        fn path(&self) -> &std::path::Path {
            self.$field.path()
        }
    };
    (@ $field:ident timeline) => {
        fn timeline(&self) -> gpushim_trace::Timeline {
            self.$field.timeline()
        }
    };
}

pub(crate) use forward;
