-- Replaces an entity under the condition of its version: UPDATE. pgbench does
-- not know the version, so :version is 0, which stands for any.
\set p random(100000, 99999 + :partitions)
\set r random(1000000, 999999 + :each)
UPDATE entities SET properties = :properties::jsonb, modified = greatest(modified + 1, :now::bigint)
WHERE bucket = :bucket::bigint AND pk = :p::text AND rk = :r::text
AND modified = coalesce(nullif(:version::bigint, 0), modified)
AND EXISTS (SELECT 1 FROM tables WHERE table_no = :table::bigint)
RETURNING modified;
