-- Null, or the only number under which a table that is being respread may insert into the bucket.
ALTER TABLE buckets ADD COLUMN table_no bigint;
