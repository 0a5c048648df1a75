-- Accounts whose queries an operator has chosen: extended, or as the service has them. Accounts without a
-- row have what the settings say. They are counted in account_option_changes.
CREATE TABLE account_queries (
    name     text COLLATE "C" PRIMARY KEY,
    extended boolean NOT NULL
);
