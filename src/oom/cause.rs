//! Causes of a failed request: conditions without which it would have succeeded.

use serde::Serialize;

/// Why a request could not be met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case", tag = "cause")]
pub enum Cause {
    /// The request is larger than the limit or the whole device. Evidence: its size against
    /// `GPUSHIM_LIMIT` and the driver's total.
    TooLarge {
        /// The most that one request can get, bytes.
        most: u64,
        /// True if that is `GPUSHIM_LIMIT`, and not the memory of the device.
        by_limit: bool,
    },
    /// Without the blocks that iterations left behind it would have fitted. Evidence: the growth analysis
    /// is sure.
    Growth {
        /// Bytes of those that were live.
        kept: u64,
        /// Bytes of each iteration.
        per_iteration: u64,
    },
    /// PyTorch refused the request itself, as `set_per_process_memory_fraction` tells it to.
    /// Evidence: no request for memory failed below it although it reported one, or the device had
    /// the memory free.
    FrameworkLimit {
        /// Bytes that the device had free, if that is known.
        free: Option<u64>,
        /// Bytes that PyTorch held.
        reserved: u64,
    },
    /// It would have fitted if blocks that the program had freed did not wait for captures, graphs or
    /// streams. Evidence: the pool's own state, or blocks of a snapshot that streams still used.
    Waiting {
        /// Bytes that wait.
        bytes: u64,
    },
    /// It would have fitted if it could have used free memory of other pools or streams, or of another
    /// layer. Evidence: what these had reserved and not handed out.
    CachedElsewhere {
        /// Free bytes there.
        bytes: u64,
        /// Where they are.
        place: Place,
    },
    /// It would have fitted if free memory lay in one piece. Evidence: cached and free memory against the
    /// request and the largest free piece.
    Fragmentation {
        /// Bytes of the cache that are free.
        cached: u64,
        /// The largest free piece, if it is known.
        largest: Option<u64>,
        /// True if it is the framework's cache, and not gpushim's pool.
        of_framework: bool,
    },
    /// Without `GPUSHIM_LIMIT` it would have fitted. Evidence: the limit, what the process held,
    /// and what the device had free.
    OurLimit {
        /// The limit, bytes.
        limit: u64,
        /// Bytes that the process held.
        held: u64,
    },
    /// Without other processes that share `GPUSHIM_LIMIT` it would have fitted. Evidence: what each of
    /// them held when the limit refused a request.
    Peers {
        /// Sum of their bytes when the limit last refused a request.
        bytes: u64,
    },
    /// Without other processes it would have fitted. Evidence: what the driver says is in use, less
    /// what this process holds, is more than a driver needs for itself.
    OtherProcesses {
        /// Bytes that they held, with what the driver needs.
        bytes: u64,
    },
    /// The driver refused although it had the memory free. Evidence: the driver's own figures after
    /// the refusal.
    DriverRefused {
        /// Bytes that were free.
        free: u64,
    },
    /// The process itself uses the memory. Evidence: free and cached memory together are less than
    /// the request.
    Full {
        /// By how many bytes.
        short: u64,
    },
    /// The recording does not say.
    Unknown,
}

/// Place of free memory that a request could not use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// Another pool of the framework: of CUDA graphs, or made by the program.
    Pool,
    /// Blocks of the framework's cache that belong to other streams.
    Stream,
    /// A framework's cache, when another library asked the driver.
    Framework,
}
