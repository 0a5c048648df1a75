-- Inserts an entity of 1 KiB: INSERT.
\set p random(100000, 99999 + :partitions)
\set r random(100000000000000, 999999999999999)
INSERT INTO entities (bucket, pk, rk, modified, properties)
SELECT :bucket::bigint, :p::text, :r::text, :now::bigint, :properties::jsonb
WHERE EXISTS (SELECT 1 FROM tables WHERE table_no = :table::bigint)
ON CONFLICT DO NOTHING RETURNING modified;
