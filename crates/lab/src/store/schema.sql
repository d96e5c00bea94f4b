-- Results of runs. Every column ends in its unit where it has one.
CREATE TABLE plans (
    name TEXT PRIMARY KEY,
    title TEXT NOT NULL,
    description TEXT NOT NULL,    -- with what the user's overrides replace
    arms TEXT NOT NULL            -- JSON: [[name, summary], ..] in the plan's order; {"arms": that, "references": ..}
                                  -- where the plan names reference arms
) STRICT;

-- What the report draws.
CREATE TABLE figures (
    plan TEXT PRIMARY KEY,
    figures TEXT NOT NULL         -- JSON: the figures in the plan's order
) STRICT;

CREATE TABLE runs (
    id INTEGER PRIMARY KEY,
    plan TEXT NOT NULL,
    arm TEXT NOT NULL,
    cell TEXT NOT NULL,           -- empty: the plan has no grid
    seed INTEGER NOT NULL,
    backend TEXT NOT NULL,
    sources TEXT NOT NULL,        -- digest of those that its runs pass
    experiment_sha256 TEXT NOT NULL,
    "commit" TEXT NOT NULL,       -- of the program, for people
    attempt INTEGER NOT NULL,     -- from 1
    valid INTEGER NOT NULL,       -- by the harness's own figures
    reasons TEXT NOT NULL,        -- JSON: why it is not
    parameters TEXT NOT NULL,     -- JSON: every key of the plan as resolved
    host TEXT NOT NULL,           -- JSON: the machine, wall-clock figures, CPU
    stop_s REAL NOT NULL,
    warmup_s REAL NOT NULL
) STRICT;
CREATE INDEX runs_by_key ON runs (plan, arm, cell, seed);

CREATE TABLE flows (
    run INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    pair TEXT NOT NULL,
    bundle TEXT,                  -- NULL: in no bundle
    cc TEXT NOT NULL,
    schedule_hash TEXT,           -- of the requests; NULL: not made of requests
    PRIMARY KEY (run, name)
) STRICT;

CREATE TABLE links (
    run INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    rate_mbps REAL,               -- NULL: a trace, or unlimited
    delay_ms REAL NOT NULL,
    qdisc TEXT NOT NULL,
    PRIMARY KEY (run, name)
) STRICT;

CREATE TABLE bundles (
    run INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    cc TEXT NOT NULL,
    qdisc TEXT NOT NULL,
    PRIMARY KEY (run, name)
) STRICT;

CREATE TABLE metrics (
    run INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    part TEXT NOT NULL,           -- run, flow, link or bundle
    name TEXT NOT NULL,           -- of the flow, link or bundle; empty for the run
    metric TEXT NOT NULL,         -- ends in the unit of the value
    value REAL NOT NULL,
    PRIMARY KEY (run, part, name, metric)
) STRICT, WITHOUT ROWID;

-- States of bundles.
CREATE TABLE transitions (
    run INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    number INTEGER NOT NULL,      -- in the run
    bundle TEXT NOT NULL,
    at_s REAL NOT NULL,
    state TEXT NOT NULL,          -- that begins
    reason TEXT NOT NULL,         -- what it was begun for
    PRIMARY KEY (run, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE requests (
    run INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    flow TEXT NOT NULL,
    number INTEGER NOT NULL,      -- in the schedule
    connection INTEGER NOT NULL,
    size_bytes INTEGER NOT NULL,
    scheduled_ns INTEGER NOT NULL,
    sent_ns INTEGER,
    finished_ns INTEGER,          -- NULL: unfinished
    queued_behind INTEGER NOT NULL,
    counted INTEGER NOT NULL,     -- arrived after the warm-up
    fct_ms REAL NOT NULL,         -- of an unfinished request its age
    slowdown REAL,
    PRIMARY KEY (run, flow, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE series (
    id INTEGER PRIMARY KEY,
    run INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    part TEXT NOT NULL,
    name TEXT NOT NULL,
    quantity TEXT NOT NULL,       -- ends in the unit of the samples' values
    samples BLOB NOT NULL,        -- as samples.rs packs them; `forebay export` unpacks them
    UNIQUE (run, part, name, quantity)
) STRICT;
