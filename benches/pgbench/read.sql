-- Reads one entity by its key: store/postgres/statements/entities.rs, READ.
\set p random(100000, 99999 + :partitions)
\set r random(1000000, 999999 + :each)
SELECT e.modified, e.properties FROM tables t
LEFT JOIN entities e ON e.bucket = :bucket::bigint AND e.pk = :p::text AND e.rk = :r::text
WHERE t.table_no = :table::bigint;
