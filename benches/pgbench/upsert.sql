-- Stores an entity whatever is there: UPSERT.
\set p random(100000, 99999 + :partitions)
\set r random(1000000, 999999 + :each)
INSERT INTO entities AS e (bucket, pk, rk, modified, properties)
SELECT :bucket::bigint, :p::text, :r::text, :now::bigint, :properties::jsonb
WHERE EXISTS (SELECT 1 FROM tables WHERE table_no = :table::bigint)
ON CONFLICT (bucket, pk, rk) DO UPDATE SET properties = excluded.properties,
modified = greatest(e.modified + 1, excluded.modified) RETURNING modified;
