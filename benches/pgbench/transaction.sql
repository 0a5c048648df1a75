-- Inserts 100 entities of 1 KiB by one statement: INSERT_MANY. The short arrays
-- are made once by each client and sent every time. The documents are one
-- parameter, which the server multiplies and parses 100 times: pgbench sends text,
-- and an array of documents as text, with every quote escaped, would cost it half
-- as much again as the binary one that Rowhouse sends.
\if :ready
\else
SELECT array_agg((1000000 + n)::text)::text AS rks, array_agg(:now::bigint + n)::text AS versions
FROM generate_series(1, 100) AS n \gset
\set ready 1
\endif
\set p random(100000000000000, 999999999999999)
INSERT INTO entities (bucket, pk, rk, modified, properties)
SELECT :bucket::bigint, :p::text, unnest(:rks::text[]), unnest(:versions::bigint[]),
    unnest(array_fill(:properties::text, ARRAY[100]))::jsonb
WHERE EXISTS (SELECT 1 FROM tables WHERE table_no = :table::bigint);
