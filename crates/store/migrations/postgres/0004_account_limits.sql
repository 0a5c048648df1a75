-- Limits that operators have set, for accounts of the database and of the settings.
CREATE TABLE account_limits (
    name                text COLLATE "C" PRIMARY KEY,
    requests_per_second bigint
);

-- One row, made by the first change. It counts the changes of limits and service properties, so
-- that servers learn of one by reading a number.
CREATE TABLE account_option_changes (
    id      integer PRIMARY KEY,
    changes bigint NOT NULL
);
