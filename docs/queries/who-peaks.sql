-- Who peaks: the most that was live on each rank's device, and when, from its events.
-- (The hints are Spark's, a comment to others: a table of ranks is small, one of events is not to be sorted for it.)
WITH blocks AS (
  SELECT /*+ BROADCAST(r) */ e.trace, e.event, e.ns, e.live
  FROM events e
  JOIN ranks r ON e.trace = r.trace AND e.device IS NOT DISTINCT FROM r.device
  WHERE e.live IS NOT NULL
    AND (r.memory = 'tensors') = (e.kind IN ('tensor-alloc', 'tensor-free'))
), highest AS (
  SELECT trace, max(live) AS peak FROM blocks GROUP BY trace
), moments AS (
  SELECT /*+ BROADCAST(h) */ h.trace, h.peak, min(b.ns) AS peak_ns
  FROM highest h JOIN blocks b ON b.trace = h.trace AND b.live = h.peak
  GROUP BY h.trace, h.peak
)
SELECT r.job, CAST(r.rank AS BIGINT) AS rank, r.host, r.device, m.peak, m.peak_ns,
       m.peak - min(m.peak) OVER (PARTITION BY r.job) AS above_least
FROM moments m JOIN ranks r ON m.trace = r.trace
ORDER BY peak DESC, job, rank;
