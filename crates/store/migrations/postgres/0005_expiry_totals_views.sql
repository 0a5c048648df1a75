-- When the entities of a table expire, and how far the pass that deletes them has come. A record
-- counts only while the table has this number.
CREATE TABLE expiry (
    table_no bigint PRIMARY KEY,
    property text COLLATE "C",
    delay    bigint NOT NULL,
    pause    bigint NOT NULL,
    made     bigint NOT NULL,
    due      bigint NOT NULL,
    began    bigint,
    pk       text COLLATE "C",
    rk       text COLLATE "C",
    clean    bigint,
    expired  bigint NOT NULL
);

-- How many entities a table had when they were last counted, and how far a new count has come.
CREATE TABLE table_totals (
    table_no bigint PRIMARY KEY,
    entities bigint,
    started  bigint,
    ended    bigint,
    began    bigint,
    share    integer,
    pk       text COLLATE "C",
    rk       text COLLATE "C",
    so_far   bigint
);

-- SQL views of tables.
CREATE TABLE sql_views (
    table_no    bigint PRIMARY KEY,
    schema_name text,
    name        text NOT NULL,
    columns     text NOT NULL,
    grants      text NOT NULL,
    refreshed   bigint NOT NULL,
    seen        bigint NOT NULL,
    is_full     boolean NOT NULL
);

-- One row: the server that does the work above, until when.
CREATE TABLE upkeep_lease (
    id     integer PRIMARY KEY,
    holder bigint NOT NULL,
    until  bigint NOT NULL
);
