-- Servers count no tables in the background any more.
DROP TABLE IF EXISTS table_totals;
