-- Finds by a property those of all entities of a table that have it: the
-- condition that store/postgres/reads/filter.rs makes of `Age eq :age`, in one
-- statement without windows.
\set age random(0, 9999)
SELECT pk, rk, modified, properties FROM entities
WHERE bucket = :bucket::bigint AND (pk, rk) >= ('', '')
AND EXISTS (SELECT 1 FROM tables WHERE table_no = :table::bigint)
AND CASE
    WHEN jsonb_typeof(properties -> 'Age') = 'number' AND properties ->> 'Age@odata.type' IS NULL
        THEN (properties -> 'Age')::int4 = :age::int4
    WHEN properties ->> 'Age@odata.type' = 'Edm.Int64' THEN (properties ->> 'Age')::int8 = :age::int8
    WHEN properties ->> 'Age@odata.type' = 'Edm.Double' THEN
        CASE WHEN properties ->> 'Age' = 'NaN' THEN false
        ELSE (properties ->> 'Age')::float8 = :age::float8 END
    ELSE false END
ORDER BY pk, rk LIMIT 1001;
