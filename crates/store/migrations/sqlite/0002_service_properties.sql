-- The twin of migrations/postgres/0002.

CREATE TABLE service_properties (
    account    TEXT PRIMARY KEY,
    properties TEXT NOT NULL
) STRICT;
