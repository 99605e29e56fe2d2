CREATE TABLE meta (key text PRIMARY KEY, value bigint NOT NULL);

CREATE TABLE lane (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant text NOT NULL, channel text NOT NULL, provider text NOT NULL, class text NOT NULL,
    UNIQUE (tenant, channel, provider, class)
);

-- What is pending. No secondary index contains the id, so that looks by id never take one of them.
CREATE TABLE queue (
    id uuid PRIMARY KEY,
    message uuid NOT NULL,
    shard smallint NOT NULL,
    lane integer NOT NULL,
    tenant text NOT NULL,
    state smallint NOT NULL,
    reason smallint,
    due bigint NOT NULL,
    attempts integer NOT NULL DEFAULT 0,
    tries integer NOT NULL DEFAULT 0,
    last_delay bigint NOT NULL DEFAULT 0,
    expires bigint NOT NULL,
    changed bigint NOT NULL,
    hash bytea NOT NULL,
    address uuid,
    address_since bigint,
    recipient text,
    retry text,
    log text,
    -- Of the message, if this is its only delivery.
    class text,
    ttl_s integer,
    envelope text,
    message_expires bigint,
    body text,
    -- Its message has a row of its own.
    shares_message boolean NOT NULL DEFAULT false,
    target text,
    alternatives text,
    bytes integer NOT NULL DEFAULT 0,
    crashes integer NOT NULL DEFAULT 0,
    started boolean NOT NULL DEFAULT false,
    cancelled boolean NOT NULL DEFAULT false,
    discarded boolean NOT NULL DEFAULT false,
    -- Leases of this batch and older ones have ended.
    free_batch bigint NOT NULL DEFAULT 0
) WITH (
    fillfactor = 90, vacuum_truncate = off, autovacuum_vacuum_cost_delay = 0,
    autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_scale_factor = 0,
    autovacuum_analyze_threshold = 2000000000, autovacuum_analyze_scale_factor = 0
);
CREATE INDEX queue_due ON queue (shard, lane, due);
CREATE INDEX queue_expires ON queue (shard, expires);
CREATE INDEX queue_crashed ON queue (shard) WHERE crashes > 0;

-- Dead letters that nobody discarded.
CREATE TABLE dead (LIKE queue INCLUDING DEFAULTS, PRIMARY KEY (id)) WITH (autovacuum_vacuum_scale_factor = 0.05);

-- What is final, by the time of its acceptance.
CREATE TABLE ledger (LIKE queue INCLUDING DEFAULTS, PRIMARY KEY (id)) PARTITION BY RANGE (id);
CREATE TABLE ledger_rest PARTITION OF ledger DEFAULT;

-- Messages with several deliveries.
CREATE TABLE message (
    id uuid PRIMARY KEY,
    tenant text NOT NULL,
    class text NOT NULL,
    expires bigint NOT NULL,
    ttl_s integer NOT NULL,
    deliveries integer NOT NULL,
    envelope text,
    content text,
    bytes integer NOT NULL,
    -- Deliveries that are pending, that need the content, and that are not forgotten.
    pending integer NOT NULL,
    needed integer NOT NULL,
    remaining integer NOT NULL
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05);

-- Leads from a tag to messages, each with the range of the ids of its deliveries.
CREATE TABLE tag (
    tenant text NOT NULL, tag text NOT NULL, message uuid NOT NULL, first uuid NOT NULL, last uuid NOT NULL,
    PRIMARY KEY (tenant, tag, message)
);
CREATE INDEX tag_message ON tag (message);

CREATE TABLE dedup (
    key bytea PRIMARY KEY, fingerprint bytea NOT NULL, message uuid NOT NULL, deliveries integer NOT NULL,
    expires bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX dedup_expires ON dedup (expires);

-- Writes that took effect, so that a write whose answer was lost can be repeated.
CREATE TABLE receipt (batch uuid PRIMARY KEY) PARTITION BY RANGE (batch);
CREATE TABLE receipt_rest PARTITION OF receipt DEFAULT;

CREATE TABLE node (name text PRIMARY KEY, number bigint NOT NULL, beat bigint NOT NULL) WITH (fillfactor = 30);
CREATE SEQUENCE node_number;
CREATE SEQUENCE lease_token START 1048576 INCREMENT 1048576;

CREATE TABLE shard (
    id smallint PRIMARY KEY, node text, number bigint, nonce bigint,
    -- How often operators acted on deliveries of this shard.
    acts bigint NOT NULL DEFAULT 0,
    -- The epoch in which its holder wrote its leases.
    epoch bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 30, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

-- A crash of the server empties this table, and may lose the last leases.
CREATE UNLOGGED TABLE epoch (only_one boolean PRIMARY KEY DEFAULT true CHECK (only_one), number bigint NOT NULL);

CREATE TABLE lease (
    shard smallint NOT NULL, batch bigint NOT NULL, nonce bigint NOT NULL, until bigint NOT NULL, ids uuid[] NOT NULL,
    PRIMARY KEY (shard, batch)
) WITH (vacuum_truncate = off, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_scale_factor = 0,
        autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_threshold = 2000000000);

-- What holders do not know yet.
CREATE TABLE inbox (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, shard smallint NOT NULL, kind smallint NOT NULL,
    ids uuid[] NOT NULL, lanes integer[] NOT NULL, dues bigint[] NOT NULL, expires bigint[] NOT NULL,
    bytes integer[] NOT NULL, firsts boolean[] NOT NULL
) WITH (vacuum_truncate = off, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_scale_factor = 0,
        autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_threshold = 2000000000);

CREATE INDEX inbox_shard ON inbox (shard, number);

-- The suspect of crashes that is leased.
CREATE TABLE turn (
    only_one boolean PRIMARY KEY DEFAULT true CHECK (only_one), delivery uuid, until bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 30);
INSERT INTO turn DEFAULT VALUES;

CREATE TABLE address (
    id uuid PRIMARY KEY, tenant text NOT NULL, recipient text, channel text NOT NULL, hash bytea NOT NULL,
    target text, status text NOT NULL, gone_at bigint,
    UNIQUE (tenant, hash)
);
CREATE INDEX address_tenant ON address (tenant, id);
CREATE INDEX address_recipient ON address (tenant, recipient, id) WHERE recipient IS NOT NULL;
CREATE TABLE gone (hash bytea NOT NULL, tenant text NOT NULL, PRIMARY KEY (hash, tenant));
CREATE TABLE strike (
    hash bytea NOT NULL, tenant text NOT NULL, kind smallint NOT NULL, count integer NOT NULL,
    first_at bigint NOT NULL, last_at bigint NOT NULL, suspect boolean NOT NULL,
    PRIMARY KEY (hash, tenant, kind)
);
CREATE INDEX strike_tenant ON strike (tenant, hash);

CREATE TABLE document (
    name text COLLATE "C" PRIMARY KEY, version bigint NOT NULL, json text,
    -- When it expires; when its deletion is forgotten, if it is deleted.
    until bigint
);
CREATE INDEX document_version ON document (version);
CREATE TABLE document_state (
    only_one boolean PRIMARY KEY DEFAULT true CHECK (only_one), newest bigint NOT NULL DEFAULT 0,
    forgotten bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 30);
INSERT INTO document_state DEFAULT VALUES;

CREATE TABLE share (name text PRIMARY KEY, next_us double precision NOT NULL, idle_at bigint NOT NULL)
    WITH (fillfactor = 30);

-- Counts by shard and tenant: states (s), reasons of dead letters (d), by their codes. Unread arrivals are not in it.
CREATE TABLE tally (
    shard smallint NOT NULL, tenant text NOT NULL, messages bigint NOT NULL DEFAULT 0,
    held bigint NOT NULL DEFAULT 0, bytes bigint NOT NULL DEFAULT 0,
    s0 bigint NOT NULL DEFAULT 0, s1 bigint NOT NULL DEFAULT 0, s2 bigint NOT NULL DEFAULT 0, s3 bigint NOT NULL DEFAULT 0,
    s4 bigint NOT NULL DEFAULT 0, s5 bigint NOT NULL DEFAULT 0, s6 bigint NOT NULL DEFAULT 0, s7 bigint NOT NULL DEFAULT 0,
    s8 bigint NOT NULL DEFAULT 0, s9 bigint NOT NULL DEFAULT 0, s10 bigint NOT NULL DEFAULT 0, s11 bigint NOT NULL DEFAULT 0,
    s12 bigint NOT NULL DEFAULT 0, s13 bigint NOT NULL DEFAULT 0, d0 bigint NOT NULL DEFAULT 0, d1 bigint NOT NULL DEFAULT 0,
    d2 bigint NOT NULL DEFAULT 0, d3 bigint NOT NULL DEFAULT 0, d4 bigint NOT NULL DEFAULT 0, d5 bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (shard, tenant)
) WITH (fillfactor = 30, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
