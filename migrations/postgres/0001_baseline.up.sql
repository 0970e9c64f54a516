-- The schema of the platform's database on PostgreSQL. sqlite/0001_baseline.up.sql is the same schema on SQLite;
-- TestEnginesHaveOneSchema compares the two.
--
-- Rules of every table:
--   * A table with rows of tenants has the column tenant (an app's id, immutable) first in its primary key, and
--     row-level security. Tables without it belong to the platform.
--   * Times are microseconds since 1970, by the database's clock (stoa_now). Money is in nano-units, a thousand
--     millionth of the currency. '' and 0 stand for "none", so that no statement has to handle NULL.
--   * Columns of JSON are TEXT: nothing here looks into them.
--   * Names that lists are sorted by have COLLATE "C", the order of SQLite and of Go.
--   * No secondary index begins with the column tenant. The planner, as long as it has no statistics of a table, would
--     prefer it to the primary key for a lookup of one row. An index that is read in the order of tenants begins with
--     the expression (tenant || ''), which no other index matches.
--   * Every statement can be repeated, because an interrupted migration is run again.

----------------------------------------------------------------------------------------------------------------------
-- Roles and functions
----------------------------------------------------------------------------------------------------------------------

-- The two roles under which Stoa's statements run. Neither can log in and neither owns a table, so forced row-level
-- security applies to both. Roles belong to the whole cluster: another database, or a process that migrates at the same
-- time, may have created them.
DO $$
DECLARE
    r TEXT;
BEGIN
    FOREACH r IN ARRAY ARRAY['stoa_tenant', 'stoa_platform'] LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = r) THEN
            BEGIN
                EXECUTE format('CREATE ROLE %I NOLOGIN', r);
            EXCEPTION WHEN duplicate_object OR unique_violation THEN
                NULL;
            END;
        END IF;
        EXECUTE format('GRANT USAGE ON SCHEMA %I TO %I', current_schema(), r);
    END LOOP;
END
$$;

-- stoa_now returns the start of the transaction. It is the only clock of leases and schedules: the clocks of processes
-- differ.
CREATE OR REPLACE FUNCTION stoa_now() RETURNS BIGINT LANGUAGE sql STABLE PARALLEL SAFE AS
$$ SELECT CAST(extract(epoch FROM now()) * 1000000 AS BIGINT) $$;

-- stoa_tenant returns the tenant of the transaction. It is NULL, which equals nothing, if the transaction set none.
CREATE OR REPLACE FUNCTION stoa_tenant() RETURNS TEXT LANGUAGE sql STABLE PARALLEL SAFE AS
$$ SELECT NULLIF(current_setting('stoa.tenant', true), '') $$;

-- stoa_protect_tenant protects table t, which has a column tenant: a tenant reaches its own rows, the platform all.
CREATE OR REPLACE FUNCTION stoa_protect_tenant(t REGCLASS) RETURNS VOID LANGUAGE plpgsql AS
$$
BEGIN
    EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', t);
    EXECUTE format('ALTER TABLE %s FORCE ROW LEVEL SECURITY', t);
    EXECUTE format('DROP POLICY IF EXISTS tenant ON %s', t);
    EXECUTE format('CREATE POLICY tenant ON %s TO stoa_tenant USING (tenant = stoa_tenant()) WITH CHECK (tenant = stoa_tenant())', t);
    EXECUTE format('DROP POLICY IF EXISTS platform ON %s', t);
    EXECUTE format('CREATE POLICY platform ON %s TO stoa_platform USING (true) WITH CHECK (true)', t);
    EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON %s TO stoa_tenant, stoa_platform', t);
END
$$;

-- stoa_protect_platform protects table t, which no tenant reaches.
CREATE OR REPLACE FUNCTION stoa_protect_platform(t REGCLASS) RETURNS VOID LANGUAGE plpgsql AS
$$
BEGIN
    EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', t);
    EXECUTE format('ALTER TABLE %s FORCE ROW LEVEL SECURITY', t);
    EXECUTE format('DROP POLICY IF EXISTS platform ON %s', t);
    EXECUTE format('CREATE POLICY platform ON %s TO stoa_platform USING (true) WITH CHECK (true)', t);
    EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON %s TO stoa_platform', t);
END
$$;

----------------------------------------------------------------------------------------------------------------------
-- Platform
----------------------------------------------------------------------------------------------------------------------

-- Values that are chosen once for all processes, such as the name of the token issuer.
CREATE TABLE IF NOT EXISTS setting (
    name  TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
);
SELECT stoa_protect_platform('setting');

-- The key sets of token issuers as any process fetched them last.
CREATE TABLE IF NOT EXISTS jwks (
    url_hash   TEXT   NOT NULL PRIMARY KEY, -- SHA-256 of the address, in hex
    document   TEXT   NOT NULL,             -- a JSON Web Key Set with the public keys alone
    fetched_at BIGINT NOT NULL
);
SELECT stoa_protect_platform('jwks');

-- The keys of the built-in token issuer. The primary key makes one process create a generation and the others read it.
CREATE TABLE IF NOT EXISTS signing_key (
    generation  BIGINT NOT NULL PRIMARY KEY,
    id          TEXT   NOT NULL UNIQUE, -- the kid in the header of its tokens
    seed        BYTEA  NOT NULL,        -- Ed25519, encrypted with a master key
    master      TEXT   NOT NULL,        -- which master key, so that it can be rotated
    signs_from  BIGINT NOT NULL,        -- it signs from then to the signs_from of the next generation
    created_at  BIGINT NOT NULL
);
SELECT stoa_protect_platform('signing_key');

-- Idempotency keys of the admin API with the recorded responses.
CREATE TABLE IF NOT EXISTS admin_call (
    actor      TEXT   NOT NULL,
    key        TEXT   NOT NULL,
    request    TEXT   NOT NULL, -- hash of method, path and body: the same key with another request is an error
    claim      TEXT   NOT NULL, -- which execution may record the response
    status     BIGINT NOT NULL, -- of the response; 0 = in progress
    body       TEXT   NOT NULL,
    app_id     TEXT   NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (actor, key)
);
CREATE INDEX IF NOT EXISTS admin_call_created ON admin_call (created_at); -- expired keys
CREATE INDEX IF NOT EXISTS admin_call_app ON admin_call (app_id); -- the keys of an app that is deleted
SELECT stoa_protect_platform('admin_call');

-- Leader leases: work that one process does for all.
CREATE TABLE IF NOT EXISTS duty (
    name   TEXT   PRIMARY KEY,
    holder TEXT   NOT NULL, -- the process
    until  BIGINT NOT NULL  -- from then on another process may take it
);
SELECT stoa_protect_platform('duty');

----------------------------------------------------------------------------------------------------------------------
-- Apps and their access
----------------------------------------------------------------------------------------------------------------------

CREATE TABLE IF NOT EXISTS app (
    tenant               TEXT   NOT NULL PRIMARY KEY,
    name                 TEXT   COLLATE "C" NOT NULL CONSTRAINT app_name UNIQUE,
    display_name         TEXT   NOT NULL,
    status               TEXT   NOT NULL, -- active, suspended, deleting
    revision             BIGINT NOT NULL, -- the configuration in force
    inputs               BIGINT NOT NULL, -- incremented when something changes that a build reads besides the configuration: secrets, grants, plan
    generation           BIGINT NOT NULL, -- incremented by every change
    grants               TEXT   NOT NULL, -- JSON
    plan                 TEXT   NOT NULL,
    labels               TEXT   NOT NULL, -- JSON
    data_key             BYTEA  NOT NULL, -- encrypts the app's secrets; encrypted with a master key
    master_key           TEXT   NOT NULL, -- which master key, so that it can be rotated
    created_at           BIGINT NOT NULL,
    updated_at           BIGINT NOT NULL,
    -- The app's limits in the queue; 0 = its plan's, or the default. They are columns because claims read them in SQL.
    weight               BIGINT NOT NULL DEFAULT 0, -- runs per round of fair sharing
    max_concurrent_tasks BIGINT NOT NULL DEFAULT 0,
    queue_depth          BIGINT NOT NULL DEFAULT 0,
    -- The app's own token issuer as JSON, and its identity in a column of its own: a token must select one app only.
    auth                 TEXT   NOT NULL DEFAULT '',
    auth_key             TEXT   COLLATE "C" NOT NULL DEFAULT '',
    rates                TEXT   NOT NULL DEFAULT '[]' -- rate limits that the operator sets, JSON
);
CREATE UNIQUE INDEX IF NOT EXISTS app_auth ON app (auth_key) WHERE auth_key <> '';
SELECT stoa_protect_tenant('app');

CREATE TABLE IF NOT EXISTS app_revision (
    tenant     TEXT   NOT NULL,
    revision   BIGINT NOT NULL,
    config     BYTEA  NOT NULL, -- encrypted with the app's data key
    actor      TEXT   NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (tenant, revision)
);
SELECT stoa_protect_tenant('app_revision');

CREATE TABLE IF NOT EXISTS app_secret (
    tenant     TEXT   NOT NULL,
    name       TEXT   COLLATE "C" NOT NULL,
    value      BYTEA  NOT NULL, -- encrypted with the app's data key
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (tenant, name)
);
SELECT stoa_protect_tenant('app_secret');

-- Revoked tokens: those of a subject that were issued up to not_before; of all subjects where the subject is ''.
CREATE TABLE IF NOT EXISTS app_mark (
    tenant     TEXT   NOT NULL,
    subject    TEXT   NOT NULL,
    not_before BIGINT NOT NULL,
    PRIMARY KEY (tenant, subject)
);
SELECT stoa_protect_tenant('app_mark');

-- The roles that an app defines besides the built-in ones. They are one document, because they are read together.
CREATE TABLE IF NOT EXISTS app_role (
    tenant  TEXT   NOT NULL PRIMARY KEY,
    roles   TEXT   NOT NULL, -- JSON
    version BIGINT NOT NULL  -- incremented by every change
);
SELECT stoa_protect_tenant('app_role');

-- API keys. The key itself is not stored: it is found by the part of it that is its id, and checked by its hash.
CREATE TABLE IF NOT EXISTS api_key (
    tenant       TEXT   NOT NULL,
    id           TEXT   COLLATE "C" NOT NULL,
    name         TEXT   NOT NULL,
    hash         BYTEA  NOT NULL,
    former       BYTEA  NOT NULL, -- hash of the key before the last rotation, which is valid as well
    former_until BIGINT NOT NULL, -- until then; 0 = there is none
    roles        TEXT   NOT NULL, -- JSON
    scope        TEXT   NOT NULL,
    actor        TEXT   NOT NULL, -- who created it
    created_at   BIGINT NOT NULL,
    rotated_at   BIGINT NOT NULL, -- 0 = never
    expires_at   BIGINT NOT NULL, -- 0 = never
    last_used_at BIGINT NOT NULL, -- to the minute, so that a key in use is not a write per call; 0 = never
    PRIMARY KEY (tenant, id)
);
CREATE UNIQUE INDEX IF NOT EXISTS api_key_id ON api_key (id); -- a call with a key does not say yet which app it is for
SELECT stoa_protect_tenant('api_key');

----------------------------------------------------------------------------------------------------------------------
-- Audit trail
----------------------------------------------------------------------------------------------------------------------

-- The entries outlive the apps they are about, so they have app_id and no tenant.
CREATE TABLE IF NOT EXISTS audit (
    id         TEXT   NOT NULL PRIMARY KEY,
    at         BIGINT NOT NULL,
    actor      TEXT   NOT NULL,
    action     TEXT   NOT NULL,
    app        TEXT   NOT NULL, -- the app's name at the time
    app_id     TEXT   NOT NULL,
    detail     TEXT   NOT NULL, -- JSON
    issuer     TEXT   NOT NULL DEFAULT '', -- of the actor's token; '' = the operator, or the platform itself
    client     TEXT   NOT NULL DEFAULT '', -- address
    request_id TEXT   NOT NULL DEFAULT '',
    seq        BIGINT NOT NULL DEFAULT 0,  -- in the chain of its app, from 1; 0 = not chained yet
    prev       TEXT   NOT NULL DEFAULT '', -- hash of the entry before it
    hash       TEXT   NOT NULL DEFAULT ''
);
-- Lists by time, by app and by actor.
CREATE INDEX IF NOT EXISTS audit_at ON audit (at, id);
CREATE INDEX IF NOT EXISTS audit_app ON audit (app, at, id);
CREATE INDEX IF NOT EXISTS audit_actor ON audit (actor, at, id);
CREATE INDEX IF NOT EXISTS audit_deleted ON audit (at) WHERE action = 'app.deleted'; -- apps whose late writes are deleted again
CREATE UNIQUE INDEX IF NOT EXISTS audit_seq ON audit (app_id, seq) WHERE seq > 0; -- a chain has no forks
CREATE INDEX IF NOT EXISTS audit_loose ON audit (app_id, at, id) WHERE seq = 0; -- entries to be chained
SELECT stoa_protect_platform('audit');
-- An app writes entries about itself, in one transaction with its own rows. It cannot read them and cannot write the
-- columns of the chain.
GRANT INSERT (id, at, actor, issuer, action, app, app_id, client, request_id, detail) ON audit TO stoa_tenant;
DROP POLICY IF EXISTS tenant ON audit;
CREATE POLICY tenant ON audit FOR INSERT TO stoa_tenant WITH CHECK (app_id = stoa_tenant());

-- The last entry of each chain. Its app_id is an app's, '' for the chain of the platform, or '*' for the number of
-- chains.
CREATE TABLE IF NOT EXISTS audit_head (
    app_id     TEXT   NOT NULL PRIMARY KEY,
    seq        BIGINT NOT NULL,
    hash       TEXT   NOT NULL,
    seal       BYTEA  NOT NULL, -- seq and hash, encrypted with a master key: who has only the database cannot forge it
    master_key TEXT   NOT NULL  -- which master key
);
SELECT stoa_protect_platform('audit_head');

-- Flaws that inspections of the chains have found.
CREATE TABLE IF NOT EXISTS audit_flaw (
    app_id   TEXT   NOT NULL, -- whose chain; '*' = the number of chains
    seq      BIGINT NOT NULL, -- of the entry; 0 = the chain as a whole
    flaw     TEXT   NOT NULL,
    app      TEXT   NOT NULL,
    entry    TEXT   NOT NULL,
    found_at BIGINT NOT NULL,
    PRIMARY KEY (app_id, seq, flaw)
);
SELECT stoa_protect_platform('audit_flaw');

----------------------------------------------------------------------------------------------------------------------
-- Tasks
----------------------------------------------------------------------------------------------------------------------

-- The space that fillfactor leaves in each page lets an update stay in it, without a write to any index; the low
-- vacuum threshold cleans up the versions of rows that every event leaves behind.
CREATE TABLE IF NOT EXISTS task (
    tenant        TEXT   NOT NULL,
    id            TEXT   NOT NULL,
    agent         TEXT   NOT NULL,
    context_id    TEXT   NOT NULL,
    owner_iss     TEXT   NOT NULL,
    owner_sub     TEXT   NOT NULL,
    state         TEXT   NOT NULL,
    epoch         BIGINT NOT NULL, -- fences writes: incremented by each lease, rescue, release, cancellation, decision, next turn and dead letter
    seq           BIGINT NOT NULL, -- of the last event
    status_seq    BIGINT NOT NULL, -- of the last event with a status
    turn          BIGINT NOT NULL, -- of the last run
    created_at    BIGINT NOT NULL,
    updated_at    BIGINT NOT NULL,
    opens_context BOOLEAN NOT NULL DEFAULT FALSE, -- the task was accepted without a context, context_id is new
    PRIMARY KEY (tenant, id)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX IF NOT EXISTS task_owner ON task (owner_sub, tenant, id); -- a caller's list
CREATE INDEX IF NOT EXISTS task_context ON task (context_id, tenant, id); -- the tasks of a context, the one that opened it first
SELECT stoa_protect_tenant('task');

-- The log of each task. Rows are inserted and never updated.
CREATE TABLE IF NOT EXISTS event (
    tenant TEXT   NOT NULL,
    task   TEXT   NOT NULL,
    seq    BIGINT NOT NULL,
    at     BIGINT NOT NULL,
    kind   TEXT   NOT NULL,
    body   TEXT   NOT NULL, -- JSON
    PRIMARY KEY (tenant, task, seq)
);
SELECT stoa_protect_tenant('event');

-- Accepted messages, so that a message that is sent twice opens one task.
CREATE TABLE IF NOT EXISTS sent (
    tenant     TEXT   NOT NULL,
    owner_iss  TEXT   NOT NULL,
    owner_sub  TEXT   NOT NULL,
    agent      TEXT   NOT NULL,
    context_id TEXT   NOT NULL, -- '' = the client named none
    message_id TEXT   NOT NULL,
    variant    TEXT   NOT NULL, -- '' within a context; else the hash: without a context only the same body is the same message
    hash       TEXT   NOT NULL, -- of the body
    task       TEXT   NOT NULL, -- that it opened or continued
    PRIMARY KEY (tenant, owner_sub, owner_iss, agent, context_id, message_id, variant)
);
CREATE INDEX IF NOT EXISTS sent_task ON sent (task, tenant); -- rows to delete with their task
SELECT stoa_protect_tenant('sent');

-- Tool calls that wait for a human. The event has the call; a decision deletes the row.
CREATE TABLE IF NOT EXISTS approval (
    tenant TEXT   NOT NULL,
    task   TEXT   NOT NULL,
    seq    BIGINT NOT NULL, -- of the event
    due_at BIGINT,          -- deadline of the decision; NULL = none
    PRIMARY KEY (tenant, task, seq)
);
CREATE INDEX IF NOT EXISTS approval_due ON approval (due_at) WHERE due_at IS NOT NULL; -- deadlines that have passed
SELECT stoa_protect_tenant('approval');

-- Requests to end a tool call that is executing. They are rows, so that neither a lost signal nor a crash loses one.
CREATE TABLE IF NOT EXISTS call_cancel (
    tenant   TEXT    NOT NULL,
    task     TEXT    NOT NULL,
    turn     BIGINT  NOT NULL,
    call     TEXT    NOT NULL,
    reason   TEXT    NOT NULL,
    taken    BOOLEAN NOT NULL, -- the executing process has ended the call
    asked_at BIGINT  NOT NULL,
    PRIMARY KEY (tenant, task, turn, call)
);
CREATE INDEX IF NOT EXISTS call_cancel_open ON call_cancel (task) WHERE NOT taken; -- what the workers poll
SELECT stoa_protect_tenant('call_cancel');

-- Push notification targets of tasks, each with the last event that was delivered. The log of the task is the queue of
-- deliveries.
CREATE TABLE IF NOT EXISTS receiver (
    tenant        TEXT   NOT NULL,
    task          TEXT   NOT NULL,
    id            TEXT   NOT NULL,
    form          TEXT   NOT NULL, -- the protocol of its requests
    value         TEXT   NOT NULL, -- URL and credentials, encrypted, in base64
    master_key    TEXT   NOT NULL, -- which master key encrypts the value's own key
    state         TEXT   NOT NULL, -- open, done (the last event was delivered), dead (given up)
    told          BIGINT NOT NULL, -- sequence number of the last event that was delivered
    attempts      BIGINT NOT NULL, -- failed deliveries since the last success
    failing_since BIGINT NOT NULL, -- 0 = the last delivery succeeded
    due_at        BIGINT NOT NULL, -- no delivery before
    holder        TEXT   NOT NULL, -- the process that delivers
    until         BIGINT NOT NULL, -- end of its lease
    error         TEXT   NOT NULL, -- of the last failed delivery
    created_at    BIGINT NOT NULL,
    PRIMARY KEY (tenant, task, id)
);
CREATE INDEX IF NOT EXISTS receiver_open ON receiver (due_at) WHERE state = 'open'; -- what the dispatchers poll
CREATE INDEX IF NOT EXISTS receiver_master ON receiver (master_key); -- values to encrypt again after a rotation
SELECT stoa_protect_tenant('receiver');

----------------------------------------------------------------------------------------------------------------------
-- Runs and workers
----------------------------------------------------------------------------------------------------------------------

-- The queue. A run is waiting (for its session), pending, running, input_required, or finished.
CREATE TABLE IF NOT EXISTS run (
    tenant       TEXT    NOT NULL,
    task         TEXT    NOT NULL,
    turn         BIGINT  NOT NULL,
    state        TEXT    NOT NULL,
    attempts     BIGINT  NOT NULL,
    revision     BIGINT  NOT NULL, -- of the app's configuration
    first_seq    BIGINT  NOT NULL, -- of the event that opened the turn: a retry replays from there
    worker       TEXT    NOT NULL, -- holds the lease; '' = none
    available_at BIGINT  NOT NULL,
    last_error   TEXT    NOT NULL,
    created_at   BIGINT  NOT NULL,
    -- The runs of a session execute one after the other: one is pending or running, the others wait. The run that
    -- opened the context gets its session only when a second run comes, so that single calls do not pay for the queue.
    session      TEXT    NOT NULL DEFAULT '',
    followed     BOOLEAN NOT NULL DEFAULT FALSE, -- other runs wait for its end
    priority     BIGINT  NOT NULL DEFAULT 1,     -- within its app, the lowest first
    ready        BOOLEAN NOT NULL DEFAULT TRUE,  -- false while a pending run waits for available_at, or is a suspect
    rescues      BIGINT  NOT NULL DEFAULT 0,     -- how many workers died with it: a suspect from the second on
    requeued     TEXT    NOT NULL DEFAULT '',    -- the task that repeats a failed one
    cut_off      BOOLEAN NOT NULL DEFAULT FALSE, -- its worker stopped in the middle of an attempt
    reserved     TEXT    NOT NULL DEFAULT '',    -- what its call reserved of token limits, JSON
    trace        TEXT    NOT NULL DEFAULT '',    -- the span of the request that created it
    postponed    BOOLEAN NOT NULL DEFAULT FALSE, -- its last attempt does not count: it continues when its app does
    PRIMARY KEY (tenant, task, turn)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02); -- as task
-- A session has one run that is pending or running, in whichever process it was accepted.
CREATE UNIQUE INDEX IF NOT EXISTS run_head ON run (session, tenant) WHERE session <> '' AND state IN ('pending', 'running');
CREATE INDEX IF NOT EXISTS run_waiting ON run (session, tenant, created_at, task, turn) WHERE state = 'waiting'; -- the next run of a session
-- Fair sharing finds the next app with claimable runs in one step of this index, whatever the length of the queues.
CREATE INDEX IF NOT EXISTS run_turn ON run ((tenant || ''), priority, available_at) WHERE state = 'pending' AND ready;
CREATE INDEX IF NOT EXISTS run_line ON run ((tenant || '')) WHERE state = 'waiting'; -- an app's queue depth
CREATE INDEX IF NOT EXISTS run_later ON run (available_at) WHERE state = 'pending' AND NOT ready; -- delays that have ended
CREATE INDEX IF NOT EXISTS run_leased ON run (state, tenant, worker) WHERE state = 'running'; -- runs of dead workers; executing runs of an app
CREATE INDEX IF NOT EXISTS run_failed ON run (task, turn) WHERE state = 'failed'; -- dead letters
CREATE INDEX IF NOT EXISTS run_resting ON run (task, turn) WHERE state = 'input_required'; -- what waits for a human
SELECT stoa_protect_tenant('run');

-- Heartbeats. A worker without a recent one is dead, and its row is deleted when its runs are rescued.
CREATE TABLE IF NOT EXISTS worker (
    id           TEXT   PRIMARY KEY,
    heartbeat_at BIGINT NOT NULL,
    config       TEXT   NOT NULL,          -- hash of the process's configuration file, '' = none: processes with different files are reported
    beats        BIGINT NOT NULL DEFAULT 1 -- heartbeats so far; a worker that reads 1 again was taken for dead
);
SELECT stoa_protect_platform('worker');

----------------------------------------------------------------------------------------------------------------------
-- Sessions and memory
----------------------------------------------------------------------------------------------------------------------

-- The history of conversations. turn and epoch make a repeated write harmless where sessions and tasks are in two
-- databases.
CREATE TABLE IF NOT EXISTS session_turn (
    tenant     TEXT   NOT NULL,
    owner_iss  TEXT   NOT NULL,
    owner_sub  TEXT   NOT NULL,
    context_id TEXT   NOT NULL,
    position   BIGINT NOT NULL,
    task       TEXT   NOT NULL,
    body       TEXT   NOT NULL, -- JSON
    turn       BIGINT NOT NULL DEFAULT 0, -- of the task
    epoch      BIGINT NOT NULL DEFAULT 0, -- of the task when the turn was written
    at         BIGINT NOT NULL DEFAULT stoa_now(),
    PRIMARY KEY (tenant, owner_sub, owner_iss, context_id, position)
);
SELECT stoa_protect_tenant('session_turn');

-- Summaries of the older turns of a conversation, one for each agent.
CREATE TABLE IF NOT EXISTS session_summary (
    tenant     TEXT   NOT NULL,
    owner_iss  TEXT   NOT NULL,
    owner_sub  TEXT   NOT NULL,
    context_id TEXT   NOT NULL,
    agent      TEXT   NOT NULL,
    position   BIGINT NOT NULL, -- of the last turn it covers; it only grows, and serves as the version
    body       TEXT   NOT NULL,
    PRIMARY KEY (tenant, owner_sub, owner_iss, context_id, agent)
);
SELECT stoa_protect_tenant('session_summary');

-- What agents recall of earlier conversations, by words or by vectors.
CREATE TABLE IF NOT EXISTS memory (
    tenant     TEXT   NOT NULL,
    id         TEXT   NOT NULL,
    owner_iss  TEXT   NOT NULL,
    owner_sub  TEXT   NOT NULL,
    agent      TEXT   NOT NULL,
    context_id TEXT   NOT NULL,
    task       TEXT   NOT NULL,
    role       TEXT   NOT NULL, -- of the message: user or agent
    text       TEXT   NOT NULL,
    words      TEXT   NOT NULL, -- the search terms of the text, separated by single spaces
    at         BIGINT NOT NULL,
    model      TEXT   NOT NULL, -- that computed the vector; '' = there is none
    vector     BYTEA,
    -- Not to_tsvector: the terms are made in Go, the same on both engines.
    lexemes    TSVECTOR GENERATED ALWAYS AS (array_to_tsvector(string_to_array(words, ' '))) STORED,
    PRIMARY KEY (tenant, id)
);
CREATE INDEX IF NOT EXISTS memory_owner ON memory (owner_sub, owner_iss, tenant, id); -- an owner's rows, for vectors and for deletion
CREATE INDEX IF NOT EXISTS memory_lexemes ON memory USING gin (lexemes);
SELECT stoa_protect_tenant('memory');

----------------------------------------------------------------------------------------------------------------------
-- Tools
----------------------------------------------------------------------------------------------------------------------

-- Descriptions of a tool server's tools as they were at the first use, or as an operator accepted them since. A server
-- that changes a description is reported.
CREATE TABLE IF NOT EXISTS tool_pin (
    tenant     TEXT   NOT NULL,
    server     TEXT   NOT NULL,
    tool       TEXT   NOT NULL,
    hash       TEXT   NOT NULL,
    body       TEXT   NOT NULL,
    pinned_at  BIGINT NOT NULL,
    drift_hash TEXT   NOT NULL, -- of what the server sends now; '' = what is pinned
    drift_body TEXT   NOT NULL,
    drifted_at BIGINT NOT NULL,
    PRIMARY KEY (tenant, server, tool)
);
SELECT stoa_protect_tenant('tool_pin');

-- Credentials that users stored for tools: the value of one header, which is sent to one server only.
CREATE TABLE IF NOT EXISTS credential (
    tenant     TEXT   NOT NULL,
    owner_iss  TEXT   NOT NULL,
    owner_sub  TEXT   NOT NULL,
    tool       TEXT   NOT NULL, -- its name in the configuration
    header     TEXT   NOT NULL,
    server     TEXT   NOT NULL, -- scheme, host and port: a configuration that names another server does not get the value
    value      TEXT   NOT NULL, -- encrypted, in base64
    master_key TEXT   NOT NULL, -- which master key encrypts the value's own key
    created_at BIGINT NOT NULL,
    PRIMARY KEY (tenant, owner_sub, owner_iss, tool)
);
CREATE INDEX IF NOT EXISTS credential_master ON credential (master_key); -- values to encrypt again after a rotation
SELECT stoa_protect_tenant('credential');

----------------------------------------------------------------------------------------------------------------------
-- Triggers
----------------------------------------------------------------------------------------------------------------------

-- The schedules of agents: the next tick and the result of the last.
CREATE TABLE IF NOT EXISTS schedule (
    tenant     TEXT   NOT NULL,
    agent      TEXT   NOT NULL,
    spec       TEXT   NOT NULL, -- time zone and cron expression
    next_at    BIGINT NOT NULL,
    held_until BIGINT NOT NULL DEFAULT 0,  -- end of the lease of the process that starts the agent
    last_at    BIGINT NOT NULL DEFAULT 0,  -- the scheduled time, not that of the start
    last_task  TEXT   NOT NULL DEFAULT '',
    last_error TEXT   NOT NULL DEFAULT '', -- why no task was started
    PRIMARY KEY (tenant, agent)
);
CREATE INDEX IF NOT EXISTS schedule_due ON schedule (next_at); -- due ticks
SELECT stoa_protect_tenant('schedule');

-- The generation of an app at which its schedules were read: an app whose generation is newer is read again.
CREATE TABLE IF NOT EXISTS schedule_app (
    tenant     TEXT   PRIMARY KEY,
    generation BIGINT NOT NULL
);
SELECT stoa_protect_tenant('schedule_app');

----------------------------------------------------------------------------------------------------------------------
-- Rate limits
----------------------------------------------------------------------------------------------------------------------

-- Counts against the rate limits of an app, if they are counted in this database.
CREATE TABLE IF NOT EXISTS rate_count (
    tenant  TEXT   NOT NULL,
    counter TEXT   NOT NULL, -- rule, key and start of the window
    end_at  BIGINT NOT NULL, -- of the window
    used    BIGINT NOT NULL,
    PRIMARY KEY (tenant, counter)
);
SELECT stoa_protect_tenant('rate_count');

----------------------------------------------------------------------------------------------------------------------
-- Usage, prices and plans
----------------------------------------------------------------------------------------------------------------------

-- One row for each fact that is counted: a model call, a tool call, a run, embedded texts, stored bytes. The key
-- identifies the fact within its task, so that it is counted once, however often and by whichever process it is written.
CREATE TABLE IF NOT EXISTS usage (
    tenant             TEXT    NOT NULL,
    task               TEXT    NOT NULL, -- '' = it belongs to none
    key                TEXT    NOT NULL,
    kind               TEXT    NOT NULL, -- model, tool, run, embedding, storage
    at                 BIGINT  NOT NULL, -- when it was used; for a model call its start
    recorded_at        BIGINT  NOT NULL, -- when the row was written
    agent              TEXT    NOT NULL,
    owner_iss          TEXT    NOT NULL,
    owner_sub          TEXT    NOT NULL,
    key_id             TEXT    NOT NULL, -- of the API key; '' = there was none
    provider           TEXT    NOT NULL,
    model              TEXT    NOT NULL,
    input_tokens       BIGINT  NOT NULL, -- including those of the cache
    output_tokens      BIGINT  NOT NULL, -- including those of reasoning
    cache_read_tokens  BIGINT  NOT NULL,
    cache_write_tokens BIGINT  NOT NULL,
    reasoning_tokens   BIGINT  NOT NULL,
    model_calls        BIGINT  NOT NULL,
    tool_calls         BIGINT  NOT NULL,
    runs               BIGINT  NOT NULL,
    run_micros         BIGINT  NOT NULL, -- microseconds of execution
    embeddings         BIGINT  NOT NULL, -- texts
    stored_bytes       BIGINT  NOT NULL, -- on the day of at
    cost               BIGINT  NOT NULL, -- what it costs the platform, nano-units
    charge             BIGINT  NOT NULL, -- what the app is charged, nano-units
    currency           TEXT    NOT NULL, -- of both; '' = no price was in force
    price_version      TEXT    NOT NULL, -- of the price book; '' = none was in force
    unpriced           BOOLEAN NOT NULL, -- the price book has no price for it
    estimated          BOOLEAN NOT NULL, -- the vendor did not report the amount
    PRIMARY KEY (tenant, task, key)
);
CREATE INDEX IF NOT EXISTS usage_at ON usage ((tenant || ''), at); -- reports and budgets of a window
CREATE INDEX IF NOT EXISTS usage_recorded ON usage ((tenant || ''), recorded_at); -- what invoices and exports have not seen
SELECT stoa_protect_tenant('usage');
-- Rows are inserted and never changed. The platform deletes them with their app.
REVOKE UPDATE ON usage FROM stoa_tenant, stoa_platform;
REVOKE DELETE ON usage FROM stoa_tenant;

-- Samples of the bytes that an app stores, one in an hour. After the end of a day its samples become one usage row.
CREATE TABLE IF NOT EXISTS stored_sample (
    tenant TEXT   NOT NULL,
    hour   BIGINT NOT NULL, -- hours since 1970
    bytes  BIGINT NOT NULL,
    PRIMARY KEY (tenant, hour)
);
SELECT stoa_protect_tenant('stored_sample');

-- Versions of the price book, which never change. In each currency the one that came into force last applies.
CREATE TABLE IF NOT EXISTS price (
    version        TEXT   PRIMARY KEY,
    currency       TEXT   NOT NULL,
    effective_from BIGINT NOT NULL,
    items          TEXT   NOT NULL, -- JSON
    created_at     BIGINT NOT NULL
);
SELECT stoa_protect_platform('price');

CREATE TABLE IF NOT EXISTS plan (
    name                 TEXT   PRIMARY KEY,
    terms                TEXT   NOT NULL, -- the whole plan, JSON
    -- Limits in the queue, as in app; 0 = the plan has none.
    weight               BIGINT NOT NULL,
    max_concurrent_tasks BIGINT NOT NULL,
    queue_depth          BIGINT NOT NULL,
    created_at           BIGINT NOT NULL,
    updated_at           BIGINT NOT NULL
);
SELECT stoa_protect_platform('plan');
-- An app reads its own plan, because it reads its own limits.
GRANT SELECT ON plan TO stoa_tenant;
DROP POLICY IF EXISTS tenant ON plan;
CREATE POLICY tenant ON plan FOR SELECT TO stoa_tenant USING (name IN (SELECT plan FROM app WHERE app.tenant = stoa_tenant()));

-- Which prices, plans and budgets have changed, for the caches of all processes. A change takes the next generation and
-- holds the row with the topic '' until it commits, so that generations become visible in order.
CREATE TABLE IF NOT EXISTS billing_change (
    topic      TEXT   NOT NULL, -- price, plan, budget; '' = the highest generation
    key        TEXT   NOT NULL, -- the id of an app; '' = all
    generation BIGINT NOT NULL,
    PRIMARY KEY (topic, key)
);
CREATE INDEX IF NOT EXISTS billing_change_generation ON billing_change (generation); -- changes since a generation
SELECT stoa_protect_platform('billing_change');

----------------------------------------------------------------------------------------------------------------------
-- Budgets
----------------------------------------------------------------------------------------------------------------------

-- Budgets of apps. Those of the tenant '' are the platform's and apply to all apps together.
CREATE TABLE IF NOT EXISTS budget (
    tenant       TEXT    NOT NULL,
    id           TEXT    NOT NULL,
    name         TEXT    NOT NULL,
    -- Whose usage counts; '' = everybody's.
    agent        TEXT    NOT NULL,
    key_id       TEXT    NOT NULL,
    owner_sub    TEXT    NOT NULL,
    model        TEXT    NOT NULL, -- a pattern
    unit         TEXT    NOT NULL, -- tokens, calls, money
    amount       BIGINT  NOT NULL,
    currency     TEXT    NOT NULL,
    span         TEXT    NOT NULL, -- the window: minute, hour, day, week, month, year, total
    timezone     TEXT    NOT NULL,
    hard         BOOLEAN NOT NULL,
    on_exhausted TEXT    NOT NULL, -- reject, pause
    thresholds   TEXT    NOT NULL, -- percentages, JSON
    created_at   BIGINT  NOT NULL,
    updated_at   BIGINT  NOT NULL,
    updated_by   TEXT    NOT NULL DEFAULT '', -- '' = it has not been changed
    PRIMARY KEY (tenant, id)
);
CREATE UNIQUE INDEX IF NOT EXISTS budget_name ON budget ((tenant || ''), name);
SELECT stoa_protect_tenant('budget');

-- How much of a budget is used in a window. committed is the sum of the usage, reserved that of the open reservations.
CREATE TABLE IF NOT EXISTS budget_balance (
    tenant    TEXT   NOT NULL,
    budget    TEXT   NOT NULL,
    since     BIGINT NOT NULL, -- start of the window
    committed BIGINT NOT NULL,
    reserved  BIGINT NOT NULL,
    PRIMARY KEY (tenant, budget, since)
);
SELECT stoa_protect_tenant('budget_balance');

-- Thresholds that a budget has passed, each once in a window.
CREATE TABLE IF NOT EXISTS budget_event (
    tenant    TEXT    NOT NULL,
    budget    TEXT    NOT NULL,
    since     BIGINT  NOT NULL,
    threshold BIGINT  NOT NULL, -- per cent
    name      TEXT    NOT NULL, -- of the budget
    committed BIGINT  NOT NULL,
    amount    BIGINT  NOT NULL,
    at        BIGINT  NOT NULL,
    told      BOOLEAN NOT NULL DEFAULT FALSE, -- the webhook has received it, if there is one
    PRIMARY KEY (tenant, budget, since, threshold)
);
CREATE INDEX IF NOT EXISTS budget_event_untold ON budget_event (at) WHERE NOT told; -- deliveries to make
SELECT stoa_protect_tenant('budget_event');

-- What deleted apps had used of the platform's budgets: their usage rows are deleted, and it still counts.
CREATE TABLE IF NOT EXISTS budget_gone (
    budget TEXT   NOT NULL,
    since  BIGINT NOT NULL, -- start of the window
    app    TEXT   NOT NULL, -- its id
    amount BIGINT NOT NULL,
    PRIMARY KEY (budget, since, app)
);
SELECT stoa_protect_platform('budget_gone');

-- What a model call that is executing may use at most. Its process extends it; that of a dead process expires.
CREATE TABLE IF NOT EXISTS reservation (
    tenant     TEXT    NOT NULL,
    call       TEXT    NOT NULL,
    task       TEXT    NOT NULL,
    epoch      BIGINT  NOT NULL, -- of the task
    holder     TEXT    NOT NULL, -- the process
    expires_at BIGINT  NOT NULL,
    settling   BOOLEAN NOT NULL, -- set to lock the row, by the transaction that deletes it
    PRIMARY KEY (tenant, call)
);
CREATE INDEX IF NOT EXISTS reservation_expires ON reservation (expires_at); -- those to release
CREATE INDEX IF NOT EXISTS reservation_holder ON reservation (holder); -- those to extend
SELECT stoa_protect_tenant('reservation');

-- What a reservation holds of each budget.
CREATE TABLE IF NOT EXISTS reservation_line (
    tenant TEXT   NOT NULL,
    call   TEXT   NOT NULL,
    owner  TEXT   NOT NULL, -- the budget's tenant: '' for one of the platform
    budget TEXT   NOT NULL,
    since  BIGINT NOT NULL, -- start of the window
    amount BIGINT NOT NULL,
    PRIMARY KEY (tenant, call, owner, budget)
);
SELECT stoa_protect_tenant('reservation_line');

----------------------------------------------------------------------------------------------------------------------
-- Ledger, credits and invoices
----------------------------------------------------------------------------------------------------------------------

-- The ledger is double entry. It outlives the apps it is about, so its tables have the column app (an id) and no
-- tenant. Entries, postings, credits and invoices are inserted and never changed: no role has the privilege.

-- The state of an app's ledger. A transaction that writes entries locks this row first.
CREATE TABLE IF NOT EXISTS ledger (
    app             TEXT   PRIMARY KEY,
    name            TEXT   NOT NULL, -- the app's name at the last entry
    opened_at       BIGINT NOT NULL,
    entries         BIGINT NOT NULL,
    billed_month    TEXT   NOT NULL, -- the last invoiced month; '' = none
    billed_until    BIGINT NOT NULL, -- its end: usage before it is invoiced, if it was recorded in time
    billed_recorded BIGINT NOT NULL  -- usage recorded before this is invoiced; for later rows see usage_billed
);
SELECT stoa_protect_platform('ledger');

CREATE TABLE IF NOT EXISTS ledger_entry (
    app      TEXT   NOT NULL,
    id       BIGINT NOT NULL, -- 1, 2, 3 ... without gaps
    kind     TEXT   NOT NULL, -- charge, cost, grant, use, expiry, revocation, return, reversal
    invoice  TEXT   NOT NULL, -- it belongs to; '' = none
    credit   TEXT   NOT NULL, -- it is about; '' = none
    currency TEXT   NOT NULL,
    at       BIGINT NOT NULL,
    PRIMARY KEY (app, id)
);
SELECT stoa_protect_platform('ledger_entry');

-- The postings of an entry sum to zero. Debits are positive, credits negative.
CREATE TABLE IF NOT EXISTS ledger_posting (
    app     TEXT   NOT NULL,
    entry   BIGINT NOT NULL,
    account TEXT   NOT NULL, -- receivable, revenue, credits, promotion, cost, payable
    amount  BIGINT NOT NULL,
    PRIMARY KEY (app, entry, account)
);
SELECT stoa_protect_platform('ledger_posting');
REVOKE UPDATE, DELETE ON ledger_entry, ledger_posting FROM stoa_platform;

-- Invoiced usage that was recorded so late that rows of transactions still open may have been missed. It distinguishes
-- the rows that an invoice has seen from those it has not.
CREATE TABLE IF NOT EXISTS usage_billed (
    tenant      TEXT   NOT NULL,
    task        TEXT   NOT NULL,
    key         TEXT   NOT NULL,
    invoice     TEXT   NOT NULL,
    recorded_at BIGINT NOT NULL,
    PRIMARY KEY (tenant, task, key)
);
SELECT stoa_protect_tenant('usage_billed');

-- Granted credits. The ledger has what is left of them.
CREATE TABLE IF NOT EXISTS credit (
    app             TEXT   NOT NULL,
    id              TEXT   NOT NULL,
    amount          BIGINT NOT NULL,
    currency        TEXT   NOT NULL,
    expires_at      BIGINT NOT NULL, -- 0 = never
    note            TEXT   NOT NULL,
    actor           TEXT   NOT NULL,
    created_at      BIGINT NOT NULL,
    idempotency_key TEXT   NOT NULL DEFAULT '', -- '' = it was granted without one
    PRIMARY KEY (app, id)
);
-- A request that is repeated grants once. Keys of different actors are different.
CREATE UNIQUE INDEX IF NOT EXISTS credit_once ON credit (app, actor, idempotency_key) WHERE idempotency_key <> '';
SELECT stoa_protect_platform('credit');
REVOKE UPDATE, DELETE ON credit FROM stoa_platform;

-- Invoices and credit notes. Drafts are computed and not stored.
CREATE TABLE IF NOT EXISTS invoice (
    app          TEXT   NOT NULL,
    id           TEXT   NOT NULL,
    number       BIGINT NOT NULL,
    reverses     TEXT   NOT NULL, -- the invoice that a credit note reverses; '' = it is an invoice
    finalized_at BIGINT NOT NULL,
    body         TEXT   NOT NULL, -- the whole document, JSON
    PRIMARY KEY (app, id)
);
CREATE UNIQUE INDEX IF NOT EXISTS invoice_number_key ON invoice (number);
SELECT stoa_protect_platform('invoice');
REVOKE UPDATE, DELETE ON invoice FROM stoa_platform;
-- An app reads its own invoices.
GRANT SELECT ON invoice TO stoa_tenant;
DROP POLICY IF EXISTS tenant ON invoice;
CREATE POLICY tenant ON invoice FOR SELECT TO stoa_tenant USING (app = stoa_tenant());

-- One row with the last number given. A sequence would leave gaps, which numbers of invoices must not have.
CREATE TABLE IF NOT EXISTS invoice_number (
    id   BIGINT PRIMARY KEY,
    last BIGINT NOT NULL
);
INSERT INTO invoice_number (id, last) VALUES (1, 0) ON CONFLICT (id) DO NOTHING;
SELECT stoa_protect_platform('invoice_number');

----------------------------------------------------------------------------------------------------------------------
-- Exports of usage
----------------------------------------------------------------------------------------------------------------------

-- The state of each export and the process that executes it. Names are those of the settings.
CREATE TABLE IF NOT EXISTS export (
    name       TEXT    PRIMARY KEY,
    since      BIGINT  NOT NULL, -- usage recorded from then on is exported
    holder     TEXT    NOT NULL, -- the process
    until      BIGINT  NOT NULL, -- end of its lease
    batch      BIGINT  NOT NULL, -- number of the last batch
    pending    BOOLEAN NOT NULL, -- that batch is not acknowledged: the next process sends the same rows again
    rows       BIGINT  NOT NULL, -- acknowledged
    refused    BIGINT  NOT NULL, -- rejected by the receiver for good
    error      TEXT    NOT NULL, -- of the last attempt; '' = it succeeded
    updated_at BIGINT  NOT NULL
);
SELECT stoa_protect_platform('export');

-- Usage of an app that was recorded before sealed is exported, and no transaction can add rows there any more.
CREATE TABLE IF NOT EXISTS export_cursor (
    tenant TEXT   NOT NULL,
    export TEXT   NOT NULL,
    sealed BIGINT NOT NULL,
    PRIMARY KEY (tenant, export)
);
SELECT stoa_protect_tenant('export_cursor');

-- The batch of each row that was recorded after the cursor.
CREATE TABLE IF NOT EXISTS usage_exported (
    tenant      TEXT   NOT NULL,
    export      TEXT   NOT NULL,
    task        TEXT   NOT NULL,
    key         TEXT   NOT NULL,
    batch       BIGINT NOT NULL,
    recorded_at BIGINT NOT NULL,
    PRIMARY KEY (tenant, export, task, key)
);
CREATE INDEX IF NOT EXISTS usage_exported_batch ON usage_exported (export, batch); -- the rows of a batch that is sent again
SELECT stoa_protect_tenant('usage_exported');
