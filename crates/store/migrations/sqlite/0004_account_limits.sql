-- The twin of migrations/postgres/0004.

CREATE TABLE account_limits (
    name                TEXT PRIMARY KEY,
    requests_per_second INTEGER
) STRICT;

CREATE TABLE account_option_changes (
    id      INTEGER PRIMARY KEY,
    changes INTEGER NOT NULL
) STRICT;
