-- Spark: the tables of a dataset that `gpushim export --to parquet -o lake` wrote. Then ranks.sql, then any query.
-- A job 007 is not the number 7.
SET spark.sql.sources.partitionColumnTypeInference.enabled = false;
CREATE OR REPLACE TEMPORARY VIEW events USING parquet OPTIONS (path 'lake/events');
CREATE OR REPLACE TEMPORARY VIEW summaries USING parquet OPTIONS (path 'lake/summaries');
CREATE OR REPLACE TEMPORARY VIEW holders USING parquet OPTIONS (path 'lake/holders');
CREATE OR REPLACE TEMPORARY VIEW phases USING parquet OPTIONS (path 'lake/phases');
CREATE OR REPLACE TEMPORARY VIEW over_time USING parquet OPTIONS (path 'lake/over_time');
