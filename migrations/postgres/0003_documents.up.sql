-- Retrieval: document stores, their documents, and the chunks and vectors by which they are found. Package
-- agentsvc/document/corpus has all statements and explains revisions, generations, passes and removals.
--
-- Under forced row-level security PostgreSQL uses no GIN index for a tenant's statement, because the operators are not
-- leakproof. Words are therefore matched by a filter over the rows of one store, and memory_lexemes goes, which cost
-- writes and was never read. The column memory.lexemes stays: it makes that filter fast.
DROP INDEX IF EXISTS memory_lexemes;

-- A document store of an app's configuration.
CREATE TABLE IF NOT EXISTS document_store (
    tenant            TEXT   NOT NULL,
    store             TEXT   NOT NULL COLLATE "C",
    source            TEXT   NOT NULL, -- its type
    config_revision   BIGINT NOT NULL, -- of the configuration that the row was adapted to
    generation        BIGINT NOT NULL, -- that is searched
    recipe            TEXT   NOT NULL, -- of the generation
    embedder          TEXT   NOT NULL, -- the model of its vectors; '' = none
    building          BIGINT NOT NULL, -- the generation that is being built; 0 = none
    building_recipe   TEXT   NOT NULL,
    building_embedder TEXT   NOT NULL,
    latest_generation BIGINT NOT NULL, -- the highest number that was used
    state             TEXT   NOT NULL, -- 'deleting' = it has left the configuration; '' otherwise
    error             TEXT   NOT NULL, -- why the last pass failed
    embedded_tokens   BIGINT NOT NULL,
    updated_at        BIGINT NOT NULL,
    PRIMARY KEY (tenant, store)
);
SELECT stoa_protect_tenant('document_store');

CREATE TABLE IF NOT EXISTS document (
    tenant         TEXT    NOT NULL,
    store          TEXT    NOT NULL COLLATE "C",
    id             TEXT    NOT NULL COLLATE "C",
    title          TEXT    NOT NULL,
    media_type     TEXT    NOT NULL,
    bytes          BIGINT  NOT NULL,
    state          TEXT    NOT NULL, -- pending, indexed or failed
    error          TEXT    NOT NULL, -- why it failed, or its last attempt did
    content_hash   TEXT    NOT NULL, -- SHA-256, in hex
    source_version TEXT    NOT NULL, -- what the source names the version with
    url            TEXT    NOT NULL,
    metadata       TEXT    NOT NULL, -- JSON, an object of strings; searches filter by it
    access         TEXT    NOT NULL, -- JSON, as it was given; document_reader has it for searches
    access_open    BOOLEAN NOT NULL, -- every caller of the app may read it
    revision       BIGINT  NOT NULL, -- of the content; random, compared for equality alone
    attempts       BIGINT  NOT NULL, -- of indexing the revision, that failed
    available_at   BIGINT  NOT NULL, -- of the next attempt
    waiting_since  BIGINT  NOT NULL, -- since when it is pending
    updated_at     BIGINT  NOT NULL,
    PRIMARY KEY (tenant, store, id)
);
CREATE INDEX IF NOT EXISTS document_pending ON document (store, id, tenant) WHERE state = 'pending'; -- what a pass has to do
CREATE INDEX IF NOT EXISTS document_waiting ON document (waiting_since) WHERE state = 'pending'; -- the oldest of all apps
SELECT stoa_protect_tenant('document');

-- The content of uploads. Documents of other sources are read from there again.
CREATE TABLE IF NOT EXISTS document_body (
    tenant TEXT  NOT NULL,
    store  TEXT  NOT NULL COLLATE "C",
    id     TEXT  NOT NULL COLLATE "C",
    body   BYTEA NOT NULL,
    PRIMARY KEY (tenant, store, id)
);
SELECT stoa_protect_tenant('document_body');

-- Who may read the documents that are not open.
CREATE TABLE IF NOT EXISTS document_reader (
    tenant TEXT NOT NULL,
    store  TEXT NOT NULL COLLATE "C",
    id     TEXT NOT NULL COLLATE "C",
    kind   TEXT NOT NULL, -- subject, user (issuer, a space, subject) or role
    name   TEXT NOT NULL,
    PRIMARY KEY (tenant, store, id, kind, name)
);
SELECT stoa_protect_tenant('document_reader');

-- The revision of a document that is found in a generation. No row = it is not found.
CREATE TABLE IF NOT EXISTS document_live (
    tenant     TEXT   NOT NULL,
    store      TEXT   NOT NULL COLLATE "C",
    document   TEXT   NOT NULL COLLATE "C",
    generation BIGINT NOT NULL,
    revision   BIGINT NOT NULL,
    chunks     BIGINT NOT NULL,
    word_count BIGINT NOT NULL, -- of all chunks
    collection TEXT   NOT NULL, -- of the external vector store that has the vectors; '' = chunk_vector has them
    PRIMARY KEY (tenant, store, document, generation)
);
SELECT stoa_protect_tenant('document_live');

-- The pieces of a document that are found as one. Rows are inserted and deleted, never changed.
CREATE TABLE IF NOT EXISTS chunk (
    tenant     TEXT   NOT NULL,
    store      TEXT   NOT NULL COLLATE "C",
    document   TEXT   NOT NULL COLLATE "C",
    generation BIGINT NOT NULL,
    revision   BIGINT NOT NULL,
    ordinal    BIGINT NOT NULL,
    id         TEXT   NOT NULL,
    start_at   BIGINT NOT NULL, -- byte offsets in the text of the document
    end_at     BIGINT NOT NULL,
    page       BIGINT NOT NULL,
    heading    TEXT   NOT NULL,
    sheet      TEXT   NOT NULL,
    line       BIGINT NOT NULL,
    word_count BIGINT NOT NULL,
    words      TEXT   NOT NULL, -- the search terms, as often as they occur, separated by single spaces
    text       TEXT   NOT NULL,
    -- Not to_tsvector: the terms are made in Go, the same on both engines.
    lexemes    TSVECTOR GENERATED ALWAYS AS (array_to_tsvector(string_to_array(words, ' '))) STORED,
    PRIMARY KEY (tenant, store, document, generation, revision, ordinal)
);
-- A search reads the terms of every row and the text of a few.
ALTER TABLE chunk ALTER COLUMN text SET STORAGE EXTERNAL;
CREATE INDEX IF NOT EXISTS chunk_id ON chunk (id, tenant);
SELECT stoa_protect_tenant('chunk');

-- The vectors of chunks.
CREATE TABLE IF NOT EXISTS chunk_vector (
    tenant     TEXT   NOT NULL,
    store      TEXT   NOT NULL COLLATE "C",
    document   TEXT   NOT NULL COLLATE "C",
    generation BIGINT NOT NULL,
    revision   BIGINT NOT NULL,
    ordinal    BIGINT NOT NULL,
    id         TEXT   NOT NULL, -- of the chunk
    model      TEXT   NOT NULL, -- that made the vector
    text_hash  TEXT   NOT NULL, -- of the text that was embedded, so that its vector can be used again
    vector     BYTEA  NOT NULL, -- of length 1; little-endian float32
    PRIMARY KEY (tenant, store, document, generation, revision, ordinal)
);
-- Vectors cannot be compressed, and a search reads all of them: rows of up to 2,000 dimensions stay in one place.
ALTER TABLE chunk_vector ALTER COLUMN vector SET STORAGE EXTERNAL;
ALTER TABLE chunk_vector SET (toast_tuple_target = 8160);
CREATE INDEX IF NOT EXISTS chunk_vector_text ON chunk_vector (text_hash, model, tenant);
SELECT stoa_protect_tenant('chunk_vector');

-- What external vector stores still have to delete.
CREATE TABLE IF NOT EXISTS removed_chunk (
    tenant       TEXT   NOT NULL,
    store        TEXT   NOT NULL COLLATE "C",
    collection   TEXT   NOT NULL,
    chunk        TEXT   NOT NULL, -- its id; '' = the whole collection
    available_at BIGINT NOT NULL, -- later than now while its document may still be committed
    PRIMARY KEY (tenant, store, collection, chunk)
);
SELECT stoa_protect_tenant('removed_chunk');

-- The indexing of each store: when it is due, and which process does it.
CREATE TABLE IF NOT EXISTS index_pass (
    tenant          TEXT    NOT NULL,
    store           TEXT    NOT NULL COLLATE "C",
    epoch           BIGINT  NOT NULL, -- grows with each claim, and fences the writes of the holder before
    holder          TEXT    NOT NULL, -- the process; '' = none
    due_at          BIGINT  NOT NULL, -- when it may be claimed: the end of the lease while there is a holder
    requested       BOOLEAN NOT NULL, -- since it was claimed
    cursor          TEXT    NOT NULL, -- what the holder before left for the next
    attempts        BIGINT  NOT NULL, -- that failed, since one succeeded
    removal_allowed BOOLEAN NOT NULL, -- the next listing may remove any number of documents
    served_at       BIGINT  NOT NULL, -- when it was claimed or released last
    PRIMARY KEY (tenant, store)
);
CREATE INDEX IF NOT EXISTS index_pass_due ON index_pass (due_at);
SELECT stoa_protect_tenant('index_pass');

-- The generation of each app at which its document stores were adapted to its configuration.
CREATE TABLE IF NOT EXISTS index_app (
    tenant     TEXT   PRIMARY KEY,
    generation BIGINT NOT NULL
);
SELECT stoa_protect_tenant('index_app');
