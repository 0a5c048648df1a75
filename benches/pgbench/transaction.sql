-- Inserts 100 entities of 1 KiB by one statement: INSERT_MANY. The arrays are
-- made once by each client and sent every time.
\if :ready
\else
SELECT array_agg((1000000 + n)::text)::text AS rks, array_agg(:now::bigint + n)::text AS versions,
array_agg(:properties::jsonb)::text AS many FROM generate_series(1, 100) AS n \gset
\set ready 1
\endif
\set p random(100000000000000, 999999999999999)
INSERT INTO entities (bucket, pk, rk, modified, properties)
SELECT :bucket::bigint, :p::text, u.rk, u.modified, u.properties
FROM unnest(:rks::text[], :versions::bigint[], :many::jsonb[]) AS u (rk, modified, properties)
WHERE EXISTS (SELECT 1 FROM tables WHERE table_no = :table::bigint) RETURNING rk;
