//! Limits of frameworks on CUDA's stream-ordered allocations. `docs/frameworks.md` has this table.

use super::Framework;

/// One thing that a framework cannot do when it was taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Framework with this limit.
    pub framework: Framework,
    /// Feature that is limited, in Markdown.
    pub what: &'static str,
    /// Result of its use, in Markdown.
    pub instead: &'static str,
}

const fn torch(what: &'static str, instead: &'static str) -> Limit {
    Limit {
        framework: Framework::Torch,
        what,
        instead,
    }
}

/// All known limits. PyTorch's were seen with version 2.11 on an H100, except the last, which
/// follows from its source. JAX 0.11 was used for small programs only.
pub const LIMITS: [Limit; 8] = [
    torch(
        "`torch.compile(mode=\"reduce-overhead\")`",
        "raises \"does not yet support checkPoolLiveAllocations\"; other modes work",
    ),
    torch(
        "`torch.cuda.MemPool`",
        "raises \"does not yet support createOrIncrefPool\"",
    ),
    torch(
        "`torch.cuda.memory._record_memory_history`",
        "raises; the trace has every allocation",
    ),
    torch(
        "`torch.cuda.make_graphed_callables`",
        "gives the right result, but the process aborts at its exit with \"invalid argument\"",
    ),
    torch(
        "tensors made in a capture",
        "work; their frees print warnings",
    ),
    torch(
        "CUDA tensors sent to another process (`torch.multiprocessing`)",
        "raises \"does not yet support shareIpcHandle\"; stream-ordered memory of the policy `vmm` has no legacy \
         IPC handle in any program",
    ),
    Limit {
        framework: Framework::Jax,
        what: "legacy CUDA IPC of its memory",
        instead: "fails: stream-ordered memory of the policy `vmm` has no such handle",
    },
    Limit {
        framework: Framework::Tf,
        what: "its allocator `cuda_malloc_async`",
        instead: "not tried under gpushim so far",
    },
];

/// Limits of a framework, in one line.
pub fn limits_of(framework: Framework) -> String {
    let own = LIMITS.iter().filter(|limit| limit.framework == framework);
    let each = |limit: &Limit| format!("{}: {}", limit.what, limit.instead);
    own.map(each).collect::<Vec<_>>().join("; ")
}
