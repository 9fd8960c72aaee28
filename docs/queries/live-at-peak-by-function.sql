-- Who holds the peak: the bytes and blocks of each function that were live when most was, on each rank, from its events.
-- (The hints are Spark's, a comment to others: a table of ranks is small, one of events is not to be sorted for it.)
WITH blocks AS (
  SELECT /*+ BROADCAST(r) */ e.trace, e.event, e.kind, e.address, e.size, e.site, e.live
  FROM events e
  JOIN ranks r ON e.trace = r.trace AND e.device IS NOT DISTINCT FROM r.device
  WHERE e.live IS NOT NULL
    AND (r.memory = 'tensors') = (e.kind IN ('tensor-alloc', 'tensor-free'))
), highest AS (
  SELECT trace, max(live) AS peak FROM blocks GROUP BY trace
), moments AS (
  SELECT /*+ BROADCAST(h) */ h.trace, min(b.event) AS event
  FROM highest h JOIN blocks b ON b.trace = h.trace AND b.live = h.peak
  GROUP BY h.trace
), before AS (
  SELECT /*+ BROADCAST(m) */ b.*, row_number() OVER (PARTITION BY b.trace, b.address ORDER BY b.event DESC) AS back
  FROM blocks b JOIN moments m ON b.trace = m.trace
  WHERE b.event <= m.event
)
SELECT r.job, CAST(r.rank AS BIGINT) AS rank, coalesce(b.site, '') AS function,
       CAST(sum(b.size) AS BIGINT) AS bytes, count(*) AS blocks
FROM before b JOIN ranks r ON b.trace = r.trace
WHERE b.back = 1 AND b.kind IN ('alloc', 'tensor-alloc')
GROUP BY r.job, CAST(r.rank AS BIGINT), coalesce(b.site, '')
ORDER BY job, rank, bytes DESC, function;
