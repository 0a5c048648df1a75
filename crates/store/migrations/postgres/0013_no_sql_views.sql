-- Servers create no SQL views any more: the records of those that they created go. The views themselves stay.
DROP TABLE IF EXISTS sql_views;
