-- Fragmentation over time: what is held from the driver and not live, in each column of time of each rank.
SELECT r.job, CAST(r.rank AS BIGINT) AS rank, o.ns, o.live, o.reserved, o.reserved - o.live AS unused
FROM over_time o JOIN ranks r ON o.trace = r.trace
WHERE o.reserved IS NOT NULL
ORDER BY job, rank, ns;
