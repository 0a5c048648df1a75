-- Reads the first 1000 entities of a partition: range(), bounded, and one more
-- row, which the next page would start with.
\set p random(100000, 99999 + :partitions)
\set q :p + 1
SELECT pk, rk, modified, properties FROM entities
WHERE bucket = :bucket::bigint AND (pk, rk) >= (:p::text, '') AND (pk, rk) < (:q::text, '')
AND EXISTS (SELECT 1 FROM tables WHERE table_no = :table::bigint)
ORDER BY pk, rk LIMIT 1001;
