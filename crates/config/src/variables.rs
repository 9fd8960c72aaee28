//! The table of variables: names, defaults, accepted values, help. Nothing else defines them.

use std::fmt::Write;

/// One `GPUSHIM_*` variable.
#[derive(Debug, PartialEq, Eq)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// The value that is used when it is not set.
    pub default: &'static str,
    /// What it accepts, as a noun phrase.
    pub accepts: &'static str,
    /// What it does, in whole sentences.
    pub help: &'static str,
    /// Whether this version does anything with it.
    pub used: bool,
}

macro_rules! variables {
    ($($ident:ident = { $name:literal, $default:literal, $accepts:literal, $used:literal, $help:literal })*) => {
        $(#[doc = $help]
        pub static $ident: Variable =
            Variable { name: $name, default: $default, accepts: $accepts, help: $help, used: $used };)*
        /// Every variable, in the order in which they are listed for people.
        pub static VARIABLES: [Variable; [$($name),*].len()] = [
            $(Variable { name: $name, default: $default, accepts: $accepts, help: $help, used: $used }),*
        ];
    };
}

variables! {
    POLICY = { "GPUSHIM_POLICY", "auto", "auto, off, blocks, segments, bins, driver, vmm or plan:FILE", true,
        "Where device memory comes from. `auto`: `blocks` for `cudaMalloc` and its kin, `vmm` for stream-ordered \
         memory (`cudaMallocAsync` and its kin). Any other value holds for both. `blocks`: whole driver allocations, \
         cached one to one, so that IPC, NCCL and address queries see what they would natively. `segments`: best fit \
         inside large driver allocations. `vmm`: best fit over one reserved range of addresses for each pool, with \
         pages of memory mapped where they are needed; such memory has no IPC handle. `bins`: whole driver \
         allocations of power-of-two sizes. `off` and `driver`: every call goes to the driver and is recorded. \
         `plan:FILE`: `vmm`, and each request goes where the file says, which `gpushim plan` made of a recording, as \
         long as the program repeats that; from the first request that differs on it is `vmm` alone. In FILE `%r` is the \
         rank and `%h` the host, as in `GPUSHIM_TRACE`." }
    REUSE = { "GPUSHIM_REUSE", "order", "order, wait or strict", true,
        "What makes a freed block safe to hand out again. `order`: later work waits on the device for the work before \
         the free. `wait`: the host waits for it, at the allocation. `strict`: the host waits at each free, as the \
         driver does; for programs that read host memory after a free without synchronising." }
    LIMIT = { "GPUSHIM_LIMIT", "none", "a size like 512M, 1.5g or 2GiB, or none", true,
        "Device memory that the process may hold, per device. `cuMemGetInfo` agrees; a request beyond it is an honest \
         out-of-memory error. What a graph allocates when it runs is the driver's and does not count." }
    CACHE_MAX = { "GPUSHIM_CACHE_MAX", "none", "a size like 512M, 1.5g or 2GiB, 0, or none", true,
        "Freed memory that is kept for reuse, per device, at most. `none` leaves it to the policy." }
    DECAY = { "GPUSHIM_DECAY", "10s", "a time like 500ms, 10s or 2m, or off", true,
        "Cached memory that no request used for this time goes back to the driver, off the program's threads." }
    PAGE = { "GPUSHIM_PAGE", "2M", "a power of two from 2M to 1G", true,
        "The smallest unit in which the policy `vmm` maps memory." }
    TRACE = { "GPUSHIM_TRACE", "gpushim-%h-%p.trace", "a path, or off", true,
        "Where the trace of a process goes. `%p` is replaced by its id, `%r` by its rank (`RANK`, \
         `OMPI_COMM_WORLD_RANK`, `SLURM_PROCID` or `PMI_RANK`; 0 if there is none), `%h` by the host's name, `%%` by \
         `%`. An existing file is never overwritten: the new one gets `-1`, `-2`, … before its extension. The file \
         appears when the process first uses CUDA." }
    TRACE_SIZE = { "GPUSHIM_TRACE_SIZE", "64M", "a size from 64K to 1T", true,
        "Size of the trace's event ring, rounded down to a power of two; 64 bytes an event. The newest events \
         overwrite the oldest. The file takes space on the disk as it is used." }
    TRACE_MODE = { "GPUSHIM_TRACE_MODE", "ring", "ring or full", true,
        "What the trace keeps. `ring`: the newest events, beside what is live, sums and a timeline of the whole run. \
         `full`: all events; a thread of its own writes them, compressed, to a file beside the trace, never at the cost \
         of the program's threads. What the disk cannot take is counted." }
    TRACE_FACTS = { "GPUSHIM_TRACE_FACTS", "masked", "all, masked or none", true,
        "Which facts about the process a trace contains. `masked`: the command line, with what looks like a secret \
         replaced by `***`, the executable, the working directory and the host. `all`: the same, with nothing replaced. \
         `none`: none of these. `what-a-trace-tells.md` lists what else is in a trace." }
    SPOOL_SIZE = { "GPUSHIM_SPOOL_SIZE", "none", "a size like 512M, 1.5g or 2GiB, or none", true,
        "What the file of the mode `full` may take, at most; its oldest parts are deleted beyond that." }
    SPOOL_FLOOR = { "GPUSHIM_SPOOL_FLOOR", "1G", "a size like 512M, 1.5g or 2GiB, or 0", true,
        "Free space that the mode `full` leaves on the disk: below it nothing more is written." }
    STACKS = { "GPUSHIM_STACKS", "off", "off, all, a size like 1M (larger allocations only) or 1/N (one in N)", true,
        "Which allocations get a call stack." }
    PYTHON = { "GPUSHIM_PYTHON", "off", "off or on", true,
        "Whether Python (3.12 or later) makes its functions visible in stacks, as `PYTHONPERFSUPPORT=1` does." }
    NVTX = { "GPUSHIM_NVTX", "auto", "auto or off", true,
        "Whether the ranges and marks that a program announces by NVTX are recorded. A profiler that is attached gets \
         them, too." }
    TENSORS = { "GPUSHIM_TENSORS", "auto", "auto or off", true,
        "Whether allocations that a framework announces (PyTorch's tensors) are recorded as a layer of their own. The \
         framework's allocator is left as it is." }
    TAKEOVER = { "GPUSHIM_TAKEOVER", "off", "off, all, or a list of torch, jax, tf", true,
        "Which frameworks are pointed at CUDA's stream-ordered allocations, so that every tensor lives in our pool \
         with its stream. At the start of each process `backend:cudaMallocAsync` is added to `PYTORCH_CUDA_ALLOC_CONF` \
         and `PYTORCH_ALLOC_CONF` (torch), `XLA_PYTHON_CLIENT_ALLOCATOR=cuda_async` and \
         `XLA_PYTHON_CLIENT_PREALLOCATE=false` are set (jax), or `TF_GPU_ALLOCATOR=cuda_malloc_async` (tf). What the \
         user has chosen there stands. `frameworks.md` lists what a framework cannot do then." }
    LOG = { "GPUSHIM_LOG", "warn", "off, error, warn, info or debug", true,
        "What is written to stderr from within the process." }
    LIBRARY = { "GPUSHIM_LIBRARY", "", "a path", true,
        "The `libgpushim.so` that `gpushim run` preloads and `gpushim doctor` examines. If it is not set: the one next \
         to the command, or in `../lib`." }
}

/// The page for people, `docs/configuration.md`.
pub fn markdown() -> String {
    let mut page = String::from(
        "# Configuration\n\n\
         <!-- Generated by `gpushim config --markdown`; a test keeps it so. -->\n\n\
         Everything is set by environment variables, which `gpushim run` also sets from its options. \
         `gpushim config` prints what is in force. A value that cannot be used is named in one line on stderr, \
         and the default is used; the program runs on.\n\n\
         Sizes take K, M, G and T, all powers of 1024, with or without B or iB. Times take ms, s, m and h; \
         a bare number is seconds.\n\n\
         | Variable | Default | Accepts |\n|---|---|---|\n",
    );
    for variable in &VARIABLES {
        let default = if variable.default.is_empty() {
            "unset".to_string()
        } else {
            format!("`{}`", variable.default)
        };
        // Writing to a String cannot fail.
        let _ = writeln!(
            page,
            "| `{}` | {default} | {} |",
            variable.name, variable.accepts
        );
    }
    for variable in &VARIABLES {
        let _ = write!(page, "\n## {}\n\n{}\n", variable.name, variable.help);
        if !variable.used {
            page.push_str("\nAccepted, but without effect in this version.\n");
        }
    }
    page
}
