-- The twin of migrations/postgres/0014.
DROP TABLE IF EXISTS table_totals;
