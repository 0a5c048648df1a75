-- Deletes an entity that is there: DELETE. The rows 1000000 and up of the
-- partitions 900000 and up, one for each client, were stored before. A
-- client's variables outlive its transactions.
\set p 900000 + :client_id
\set n :n + 1
\set r 999999 + :n
DELETE FROM entities
WHERE bucket = :bucket::bigint AND pk = :p::text AND rk = :r::text
AND modified = coalesce(nullif(:version::bigint, 0), modified)
AND EXISTS (SELECT 1 FROM tables WHERE table_no = :table::bigint)
RETURNING modified;
