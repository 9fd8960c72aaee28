-- One process for each rank, as `gpushim report` chooses it: of those of the newest run the one that peaks highest, as
-- the workers of a process have its rank. Processes without a rank are each one of their own, unless others have one.
CREATE OR REPLACE TEMPORARY VIEW ranks AS
WITH processes AS (
  SELECT *,
         max(started_wall_ns) OVER (PARTITION BY job, coalesce(rank, trace)) AS newest_ns,
         count(rank) OVER (PARTITION BY job) AS ranked
  FROM summaries
), ordered AS (
  SELECT *, row_number() OVER (PARTITION BY job, coalesce(rank, trace) ORDER BY coalesce(peak, 0) DESC, trace DESC) AS turn
  FROM processes
  WHERE started_wall_ns + last_ns >= newest_ns AND (rank IS NOT NULL OR ranked = 0)
)
SELECT * FROM ordered WHERE turn = 1;
