//! Table of variables: names, defaults, accepted values, help. Nothing else defines them.

use std::fmt::Write;

/// One `GPUSHIM_*` variable.
#[derive(Debug, PartialEq, Eq)]
pub struct Variable {
    /// Name of the variable in the environment.
    pub name: &'static str,
    /// Value that is used when it is not set.
    pub default: &'static str,
    /// Values that it accepts, as a noun phrase.
    pub accepts: &'static str,
    /// Description of its effect, in whole sentences.
    pub help: &'static str,
}

macro_rules! variables {
    ($($ident:ident = { $name:literal, $default:literal, $accepts:literal, $help:literal })*) => {
        $(#[doc = $help]
        pub static $ident: Variable =
            Variable { name: $name, default: $default, accepts: $accepts, help: $help };)*
        /// Every variable, in the order in which they are listed for people.
        pub static VARIABLES: [Variable; [$($name),*].len()] = [
            $(Variable { name: $name, default: $default, accepts: $accepts, help: $help }),*
        ];
    };
}

variables! {
    ENABLED = { "GPUSHIM", "on", "on or off",
        "The kill switch. `off`: the preloaded library does nothing in the process: each call goes to the driver, no look-up \
         of a CUDA function finds the library's own, and there is no trace, no thread, no pool, no limit and no takeover. Set it \
         in the environment of a job, or of one process, where gpushim is preloaded and is suspected or not wanted. \
         It is read once, before the first call." }
    POLICY = { "GPUSHIM_POLICY", "auto", "auto, off, blocks or vmm",
        "How device memory is allocated, for the `cudaMalloc` family and for stream-ordered memory (the \
         `cudaMallocAsync` family). `auto`: `vmm`; where a device has no virtual memory management, `blocks` for the \
         first family and the driver's own pools for the second. `blocks`: for the `cudaMalloc` family whole driver \
         allocations, cached one to one, so that IPC and address queries give the same results as natively; set it where \
         a process without gpushim opens the program's IPC handles. Stream-ordered memory is as with `vmm`. \
         `vmm`: best fit over one reserved range of addresses \
         for each pool, with pages of memory mapped where they are needed; other processes open memory of \
         `cudaMalloc` by an IPC handle if gpushim is preloaded there, too. `off`: every call goes to the driver and is recorded." }
    REUSE = { "GPUSHIM_REUSE", "order", "order, wait or strict",
        "What makes a freed block safe to hand out again. `order`: later work waits on the device for the work \
         before the free. `wait`: the host waits for it, at the allocation. `strict`: the host waits at each free, \
         as the driver does; for programs that read host memory after a free without synchronising. It \
         holds for `cudaMalloc`; an attribute of a stream-ordered pool decides for that pool." }
    LIMIT = { "GPUSHIM_LIMIT", "none", "a size with its unit, like 512M, 1.5g or 2GiB, also with a part, like 20G,guarantee=4G, or none",
        "The most device memory that the process may hold, bytes per device; or all processes of GPUSHIM_LIMIT_SCOPE \
         together. `guarantee`: bytes that the other processes leave to this one, from its first request on a device \
         on, if they are free then. `cuMemGetInfo`, `cuDeviceTotalMem` and NVML's memory query report the limit as the \
         total; a request beyond it is an out-of-memory error. Memory that a graph allocates when it runs is the \
         driver's and does not count. Counted is what the driver takes: granules of 2 MiB, which allocations of up \
         to 1 MiB share, and of 32 MiB in pools of its own (policy `off`; pools that other processes can import). A \
         request is refused where less than a granule is left. An array has granules to itself." }
    LIMIT_SCOPE = { "GPUSHIM_LIMIT_SCOPE", "process", "process, container, job, user, or a path that begins with /",
        "Which processes GPUSHIM_LIMIT holds for. `process`: each for itself. `container`: those of the same container, \
         by its control group. `job`: those of this user in the same job of Slurm, PBS, LSF or torchrun on this machine. \
         `user`: those of this user. A path: those that name this file, which is created if there is none. They share a \
         ledger, a file in `/dev/shm` or at the path. A request that it refuses is granted if others give cached memory \
         back. The part of a process that has ended is free again, however it ended. Without a usable ledger, one line \
         says so, and the limit holds for the process alone." }
    LIMIT_REQUIRED = { "GPUSHIM_LIMIT_REQUIRED", "off", "on or off",
        "`on`: a program does not start without its limit. No context is made (error 800, not permitted) if GPUSHIM_LIMIT \
         is not in force in the scope that was asked for; and `gpushim run` does not start a program that it cannot preload." }
    CACHE_MAX = { "GPUSHIM_CACHE_MAX", "none", "a size with its unit, like 512M, 1.5g or 2GiB, 0, or none",
        "The most freed memory that is kept for reuse, bytes per device. `none` leaves it to the policy." }
    DECAY = { "GPUSHIM_DECAY", "10s", "a time like 500ms, 10s or 2m, or off",
        "Cached memory that was not used for this time is returned to the driver, by a background thread." }
    PAGE = { "GPUSHIM_PAGE", "2M", "a power of two from 2M to 1G",
        "The smallest unit in which the policy `vmm` maps memory." }
    TRACE = { "GPUSHIM_TRACE", "gpushim-%h-%p.trace", "a path, or off",
        "The path of the trace of a process. `%p` is replaced by its id, `%r` by its rank (`RANK`, \
         `OMPI_COMM_WORLD_RANK`, `PMI_RANK` or `SLURM_PROCID`; 0 if there is none), `%h` by the host's name, `%%` \
         by `%`. An existing file is never overwritten: the new one gets `-1`, `-2`, … before its extension. The \
         file is created when the process first uses CUDA, and missing folders with it." }
    TRACE_SIZE = { "GPUSHIM_TRACE_SIZE", "64M", "a size from 64K to 1T",
        "Size of the trace's event ring, rounded down to a power of two; 64 bytes an event. The newest events \
         overwrite the oldest. The file takes space on the disk as it is used." }
    TRACE_MODE = { "GPUSHIM_TRACE_MODE", "ring", "ring or full",
        "Which events the trace keeps. `ring`: the newest ones; live blocks, sums and a timeline are kept for the \
         whole run. `full`, which `gpushim run` sets: all events; a background thread writes them, compressed, \
         behind the ring, and the program's threads never wait for it. Events that do not fit on the disk are counted." }
    TRACE_FACTS = { "GPUSHIM_TRACE_FACTS", "masked", "all, masked or none",
        "Which facts about the process a trace contains. `masked`: the command line, with values that look like \
         secrets replaced by `***`, the executable, the working directory and the host. `all`: the same, with \
         nothing replaced. `none`: none of these. `what-a-trace-tells.md` lists what else is in a trace." }
    SPOOL_SIZE = { "GPUSHIM_SPOOL_SIZE", "none", "a size with its unit, like 512M, 1.5g or 2GiB, or none",
        "The most bytes of compressed events that the mode `full` keeps, for each process; beyond that the oldest make \
         room. `gpushim run` sets 4G: a whole day of 13,000 events a second, at the 3 to 4 bytes that an event of a \
         training takes; with the trace itself a process takes at most 4.2 GiB of disk." }
    SPOOL_FLOOR = { "GPUSHIM_SPOOL_FLOOR", "1G", "a size with its unit, like 512M, 1.5g or 2GiB, or 0",
        "Free space that the mode `full` leaves on the disk: with less free space it stops writing." }
    STACKS = { "GPUSHIM_STACKS", "off", "off, all, a size like 1M (larger allocations only) or 1/N (one in N)",
        "Which allocations get a call stack." }
    PYTHON = { "GPUSHIM_PYTHON", "on", "on or off",
        "Whether stacks have Python's functions, with file and line, in place of the interpreter's own. They are read \
         from the frames of CPython 3.8 to 3.14, which is not changed by it; a build without a GIL is not supported." }
    OWNERS = { "GPUSHIM_OWNERS", "off", "auto or off",
        "Whether the trace says who keeps each block of device memory, of Python 3.8 to 3.14: by which name the program \
         reaches the tensor. `auto`, which `gpushim run` sets: the main thread looks at the program's objects between \
         two instructions, when more memory is in use than ever (all of that takes at most 1 % of the run), after an \
         out-of-memory, before the interpreter ends, and when `gpushim control PID owners` or `gpushim.owners()` asks. \
         It runs no code of the program. Names of variables and attributes and keys that look like names are in the \
         trace, no values; none with `GPUSHIM_TRACE_FACTS=none`." }
    NVTX = { "GPUSHIM_NVTX", "auto", "auto or off",
        "Whether the ranges and marks that a program announces by NVTX are recorded. An attached profiler still \
         gets them." }
    TENSORS = { "GPUSHIM_TENSORS", "auto", "auto or off",
        "Whether allocations that a framework announces (PyTorch's tensors) are recorded as a separate layer. The \
         framework's allocator is not changed." }
    TAKEOVER = { "GPUSHIM_TAKEOVER", "off", "off, all, or a list of torch, jax, tf",
        "Which frameworks are pointed at CUDA's stream-ordered allocations, so that every tensor is allocated from \
         gpushim's pool on its stream. At the start of each process `backend:cudaMallocAsync` is added to \
         `PYTORCH_CUDA_ALLOC_CONF` and `PYTORCH_ALLOC_CONF` (torch), `XLA_PYTHON_CLIENT_ALLOCATOR=cuda_async` and \
         `XLA_PYTHON_CLIENT_PREALLOCATE=false` are set (jax), or `TF_GPU_ALLOCATOR=cuda_malloc_async` (tf). \
         Allocators that the user has set there are kept. `frameworks.md` lists what a framework cannot do then." }
    ELASTIC = { "GPUSHIM_ELASTIC", "off", "off, auto or on",
        "Whether the segments of PyTorch's own allocator have memory only where a tensor is. `auto`: each \
         piece of 2 to 8 MiB has memory of its own until memory is short (the limit, another process, \
         another library); then pieces share memory, of which one with a tensor has it. `on`: they also \
         share it where otherwise more would be held than was in use at a time. A tensor has its memory \
         before PyTorch hands it out. What is captured by a graph keeps its memory. At the start of each process \
         `expandable_segments:True` is added to `PYTORCH_CUDA_ALLOC_CONF` and `PYTORCH_ALLOC_CONF`, unless the user \
         chose there. `frameworks.md` says what is not possible then." }
    AUTOPSY = { "GPUSHIM_AUTOPSY", "off", "off, on, or the path of the command gpushim",
        "Whether a request that runs out of memory is explained on stderr within a second, and in the file \
         `TRACE.autopsy`. `on`: by the `gpushim` that was installed with the library, or else the one on the `PATH`; \
         a path: by that one, as `gpushim run` sets it. It runs as a process of its own, without the preload, and \
         nothing waits for it; where it is missing nothing happens. A cause is explained once, at most one in 10 s \
         and five in a process. Call stacks are recorded then as with `GPUSHIM_STACKS=all`, unless that is set. `1` is \
         `on`, `0` is `off`." }
    LOG = { "GPUSHIM_LOG", "warn", "off, error, warn, info or debug",
        "Which messages gpushim writes to the stderr of the process." }
    LIBRARY = { "GPUSHIM_LIBRARY", "", "a path",
        "The `libgpushim.so` that `gpushim run` preloads and `gpushim doctor` examines. If it is not set: the one \
         next to the command, in `../lib`, in the folder of the Python package, or in `/usr/lib/gpushim`." }
}

/// Generates the page for people, `docs/configuration.md`.
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
    }
    page
}
