-- The twin of migrations/postgres/0011.

CREATE TABLE account_queries (
    name     TEXT PRIMARY KEY,
    extended INTEGER NOT NULL
) STRICT;
