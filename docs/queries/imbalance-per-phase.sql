-- Imbalance of each phase: how the most that was live in it is distributed over the ranks, and which rank has most.
WITH peaks AS (
  SELECT r.job, p.phase, CAST(r.rank AS BIGINT) AS rank, p.peak,
         row_number() OVER (PARTITION BY r.job, p.phase ORDER BY p.peak) - 1 AS place,
         row_number() OVER (PARTITION BY r.job, p.phase ORDER BY p.peak DESC, CAST(r.rank AS BIGINT)) AS from_top,
         count(*) OVER (PARTITION BY r.job, p.phase) - 1 AS last
  FROM phases p JOIN ranks r ON p.trace = r.trace
)
SELECT job, phase, CAST(sum(peak) AS BIGINT) AS sum, min(peak) AS least,
       max(CASE WHEN place = floor(last * 1 / 10) THEN peak END) AS p10,
       max(CASE WHEN place = floor(last * 5 / 10) THEN peak END) AS median,
       max(CASE WHEN place = floor(last * 9 / 10) THEN peak END) AS p90,
       max(peak) AS most, max(CASE WHEN from_top = 1 THEN rank END) AS highest
FROM peaks
GROUP BY job, phase
ORDER BY job, phase;
