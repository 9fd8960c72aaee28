//! The complete list of promised differences, each with its reason. Any other difference is a bug.

/// One promised difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// Memory is found where the driver finds none.
    Served,
    /// Memory is not found where rounding leaves none.
    Rounded,
    /// Free memory differs by rounding and by cached memory.
    Free,
    /// Requests that the limit refuses.
    Limited,
    /// Total memory, which is the limit.
    Total,
    /// Bytes that a pool holds.
    Reserved,
    /// Bytes of a pool that are in use.
    Used,
    /// Allocating and freeing while a stream captures.
    Lawful,
    /// Memory that a capture was served against its rules is kept. No error says that the capture
    /// is broken.
    Kept,
    /// Legacy IPC and RDMA of addresses that are no whole allocation of the driver's.
    Ipc,
    /// `SYNC_MEMOPS` of addresses in pages.
    SyncMemops,
    /// The driver's unit of memory behind an address.
    Mapping,
    /// The context of an address of `vmm`.
    Owner,
    /// Fewer findings of the stand-in: an error was answered before the driver saw it.
    Quiet,
    /// A freed address that holds another block on one side only.
    Again,
}

/// The table, as the documents show it.
pub const TABLE: &[(Promise, &str, &str)] = &[
    (
        Promise::Served,
        "a request succeeds that natively is out of memory",
        "what is cached, and what pools keep by their thresholds, is given back before a request fails",
    ),
    (
        Promise::Rounded,
        "a request is out of memory that natively just fits",
        "policies round sizes up and keep pages that a live block pins; only where less is free natively than that can be",
    ),
    (
        Promise::Free,
        "free bytes of cuMemGetInfo",
        "blocks are rounded by the policy, and cached memory counts as free unless it waits for a graph or shares a page with what is not over; never more than total less what is live",
    ),
    (
        Promise::Limited,
        "a request beyond GPUSHIM_LIMIT is out of memory",
        "that is what the limit is for",
    ),
    (
        Promise::Total,
        "total bytes of cuMemGetInfo under GPUSHIM_LIMIT",
        "the limit is the total",
    ),
    (
        Promise::Reserved,
        "reserved bytes of a pool",
        "our pools grow by pages, the driver's by 32 MiB",
    ),
    (
        Promise::Used,
        "used bytes of a pool after a request that only one of both could serve",
        "they count what was served",
    ),
    (
        Promise::Lawful,
        "an allocation or a free that a capture forbids (900, 906) succeeds, and the capture goes on",
        "a pool that can serve it needs no forbidden call, and a capture that natively breaks stays whole",
    ),
    (
        Promise::Kept,
        "a request is out of memory while another thread's default stream captures, and cuMemAlloc was served although a capture forbade it; or while a stream captures and there is a green context",
        "it is kept for the graph, and no thread can ask whether the capture of another's default stream is still valid; and nothing waits for a green context's work while one of its streams captures",
    ),
    (
        Promise::Ipc,
        "IS_LEGACY_CUDA_IPC_CAPABLE and IS_GPU_DIRECT_RDMA_CAPABLE of pooled memory",
        "an address within a mapping cannot be exported by itself",
    ),
    (
        Promise::SyncMemops,
        "SYNC_MEMOPS, set for a block of cudaMalloc, reads 1 of all blocks of its context; for stream-ordered memory it is refused (801)",
        "the driver refuses it for memory in pages, so that the context has it in the block's place (Network cards and other drivers)",
    ),
    (
        Promise::Mapping,
        "MAPPING_SIZE, MAPPING_BASE_ADDR, MEMORY_BLOCK_ID, BUFFER_ID",
        "they describe the driver's allocation behind a block, which is ours",
    ),
    (
        Promise::Owner,
        "CONTEXT and allowed handle types of addresses in mappings",
        "mappings belong to a device, not to a context",
    ),
    (
        Promise::Quiet,
        "fewer findings of the stand-in",
        "a wrong free is refused before the driver sees it",
    ),
    (
        Promise::Again,
        "a free of a freed address",
        "which block holds a freed address next differs; a step that would free another live block is left out",
    ),
];

/// Returns the table as Markdown.
pub fn markdown() -> String {
    let mut text = "| What differs | Why |\n|---|---|\n".to_owned();
    for (_, what, why) in TABLE {
        text += &format!("| {what} | {why} |\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_shows_the_table() {
        let document = include_str!("../../../docs/differential.md");
        let shown = document
            .split_once("<!-- promises -->\n")
            .and_then(|(_, rest)| rest.split_once("<!-- end -->"));
        let shown = shown.map(|(table, _)| table);
        assert_eq!(
            shown,
            Some(markdown().as_str()),
            "put the output of `scripts/differential table` there"
        );
    }
}
