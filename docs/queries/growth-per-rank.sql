-- Growth of each rank: by how many bytes an iteration raises what is live, and whether that is a leak.
SELECT job, CAST(rank AS BIGINT) AS rank, host, iterations, iteration_ns, per_iteration, grows
FROM ranks
WHERE iterations IS NOT NULL
ORDER BY per_iteration DESC, job, rank;
