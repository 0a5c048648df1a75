-- The twin of migrations/postgres/0013.
DROP TABLE IF EXISTS sql_views;
