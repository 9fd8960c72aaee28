//! Programs and calls that a preloaded library cannot see.

use serde::Serialize;

/// A case that the library cannot see.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Limit {
    /// What.
    pub what: &'static str,
    /// Why, and what helps.
    pub why: &'static str,
}

/// All limits, in the order of the output.
pub const LIMITS: [Limit; 7] = [
    Limit {
        what: "statically linked programs",
        why: "LD_PRELOAD is read by the dynamic loader, which they do not use (a static cudart in a dynamic program \
              is seen: it loads libcuda.so.1 dynamically)",
    },
    Limit {
        what: "setuid programs and those with file capabilities",
        why: "the loader ignores LD_PRELOAD paths for them",
    },
    Limit {
        what: "programs that clear their environment",
        why: "LD_PRELOAD does not reach what they start",
    },
    Limit {
        what: "runtime calls of libraries loaded with RTLD_DEEPBIND",
        why: "they find their own symbols first; their driver calls are seen, and the trace names them as `deepbind`",
    },
    Limit {
        what: "where managed memory is",
        why: "pages migrate between host and device without a call; allocations and sizes are seen, residency is not",
    },
    Limit {
        what: "memory that the driver takes for itself",
        why: "contexts, module code, local memory and graphs take device memory without an allocation call",
    },
    Limit {
        what: "tensors of frameworks that cache and do not announce them",
        why: "only the segments that they take from the driver are calls; PyTorch announces its tensors, JAX and \
              TensorFlow do not",
    },
];
