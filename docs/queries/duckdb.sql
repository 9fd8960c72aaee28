-- DuckDB: the tables of a dataset that `gpushim export --to parquet -o lake` wrote. Then ranks.sql, then any query.
CREATE OR REPLACE TEMPORARY VIEW events AS
SELECT * FROM read_parquet('lake/events/**/*.parquet', hive_partitioning = true, hive_types_autocast = false);
CREATE OR REPLACE TEMPORARY VIEW summaries AS
SELECT * FROM read_parquet('lake/summaries/**/*.parquet', hive_partitioning = true, hive_types_autocast = false);
CREATE OR REPLACE TEMPORARY VIEW holders AS
SELECT * FROM read_parquet('lake/holders/**/*.parquet', hive_partitioning = true, hive_types_autocast = false);
CREATE OR REPLACE TEMPORARY VIEW phases AS
SELECT * FROM read_parquet('lake/phases/**/*.parquet', hive_partitioning = true, hive_types_autocast = false);
CREATE OR REPLACE TEMPORARY VIEW over_time AS
SELECT * FROM read_parquet('lake/over_time/**/*.parquet', hive_partitioning = true, hive_types_autocast = false);
