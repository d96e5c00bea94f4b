-- Tables of their own, since stores that were made without them get them when they are opened.

-- States of bundles.
CREATE TABLE IF NOT EXISTS transitions (
    run INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    number INTEGER NOT NULL,      -- in the run
    bundle TEXT NOT NULL,
    at_s REAL NOT NULL,
    state TEXT NOT NULL,          -- that begins
    reason TEXT NOT NULL,         -- what it was begun for
    PRIMARY KEY (run, number)
) STRICT, WITHOUT ROWID;

-- What the report draws.
CREATE TABLE IF NOT EXISTS figures (
    plan TEXT PRIMARY KEY,
    figures TEXT NOT NULL         -- JSON: the figures in the plan's order
) STRICT;
