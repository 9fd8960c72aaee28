-- The functions that held most at the peaks of all ranks together, from the summaries.
SELECT r.job, coalesce(h.function, '') AS function, CAST(sum(h.bytes) AS BIGINT) AS bytes, count(*) AS ranks
FROM holders h JOIN ranks r ON h.trace = r.trace AND h.device IS NOT DISTINCT FROM r.device
GROUP BY r.job, coalesce(h.function, '')
ORDER BY bytes DESC, function
LIMIT 10;
