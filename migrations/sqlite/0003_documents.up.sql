-- Retrieval: document stores, their documents, and the chunks and vectors by which they are found. Package
-- agentsvc/document/corpus has all statements and explains revisions, generations, passes and removals.

-- A document store of an app's configuration.
CREATE TABLE IF NOT EXISTS document_store (
    tenant            TEXT   NOT NULL,
    store             TEXT   NOT NULL,
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
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS document (
    tenant         TEXT    NOT NULL,
    store          TEXT    NOT NULL,
    id             TEXT    NOT NULL,
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

-- The content of uploads. Documents of other sources are read from there again.
CREATE TABLE IF NOT EXISTS document_body (
    tenant TEXT  NOT NULL,
    store  TEXT  NOT NULL,
    id     TEXT  NOT NULL,
    body   BLOB  NOT NULL,
    PRIMARY KEY (tenant, store, id)
);

-- Who may read the documents that are not open.
CREATE TABLE IF NOT EXISTS document_reader (
    tenant TEXT NOT NULL,
    store  TEXT NOT NULL,
    id     TEXT NOT NULL,
    kind   TEXT NOT NULL, -- subject, user (issuer, a space, subject) or role
    name   TEXT NOT NULL,
    PRIMARY KEY (tenant, store, id, kind, name)
) WITHOUT ROWID;

-- The revision of a document that is found in a generation. No row = it is not found.
CREATE TABLE IF NOT EXISTS document_live (
    tenant     TEXT   NOT NULL,
    store      TEXT   NOT NULL,
    document   TEXT   NOT NULL,
    generation BIGINT NOT NULL,
    revision   BIGINT NOT NULL,
    chunks     BIGINT NOT NULL,
    word_count BIGINT NOT NULL, -- of all chunks
    collection TEXT   NOT NULL, -- of the external vector store that has the vectors; '' = chunk_vector has them
    PRIMARY KEY (tenant, store, document, generation)
) WITHOUT ROWID;

-- The pieces of a document that are found as one. Rows are inserted and deleted, never changed.
CREATE TABLE IF NOT EXISTS chunk (
    n          INTEGER PRIMARY KEY, -- the row id in the full-text index
    tenant     TEXT   NOT NULL,
    store      TEXT   NOT NULL,
    document   TEXT   NOT NULL,
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
    -- One search term that stands for the store, so that the full-text index reads the store's rows only.
    scope      TEXT GENERATED ALWAYS AS (hex(tenant || char(31) || store)) VIRTUAL,
    UNIQUE (tenant, store, document, generation, revision, ordinal)
);
CREATE INDEX IF NOT EXISTS chunk_id ON chunk (id, tenant);

-- The full-text index. Its text is in chunk; triggers keep the two alike.
CREATE VIRTUAL TABLE IF NOT EXISTS chunk_words USING fts5(
    scope, words, content = 'chunk', content_rowid = 'n', tokenize = "unicode61 remove_diacritics 0 categories 'L* N* M* Co'"
);
-- A deleted row leaves the pages of the index as well, not only its results.
INSERT INTO chunk_words (chunk_words, rank) VALUES ('secure-delete', 1);
CREATE TRIGGER IF NOT EXISTS chunk_added AFTER INSERT ON chunk BEGIN
    INSERT INTO chunk_words (rowid, scope, words) VALUES (new.n, new.scope, new.words);
END;
CREATE TRIGGER IF NOT EXISTS chunk_gone AFTER DELETE ON chunk BEGIN
    INSERT INTO chunk_words (chunk_words, rowid, scope, words) VALUES ('delete', old.n, old.scope, old.words);
END;

-- The vectors of chunks.
CREATE TABLE IF NOT EXISTS chunk_vector (
    tenant     TEXT   NOT NULL,
    store      TEXT   NOT NULL,
    document   TEXT   NOT NULL,
    generation BIGINT NOT NULL,
    revision   BIGINT NOT NULL,
    ordinal    BIGINT NOT NULL,
    id         TEXT   NOT NULL, -- of the chunk
    model      TEXT   NOT NULL, -- that made the vector
    text_hash  TEXT   NOT NULL, -- of the text that was embedded, so that its vector can be used again
    vector     BLOB   NOT NULL, -- of length 1; little-endian float32
    PRIMARY KEY (tenant, store, document, generation, revision, ordinal)
);
CREATE INDEX IF NOT EXISTS chunk_vector_text ON chunk_vector (text_hash, model, tenant);

-- What external vector stores still have to delete.
CREATE TABLE IF NOT EXISTS removed_chunk (
    tenant       TEXT   NOT NULL,
    store        TEXT   NOT NULL,
    collection   TEXT   NOT NULL,
    chunk        TEXT   NOT NULL, -- its id; '' = the whole collection
    available_at BIGINT NOT NULL, -- later than now while its document may still be committed
    PRIMARY KEY (tenant, store, collection, chunk)
) WITHOUT ROWID;

-- The indexing of each store: when it is due, and which process does it.
CREATE TABLE IF NOT EXISTS index_pass (
    tenant          TEXT    NOT NULL,
    store           TEXT    NOT NULL,
    epoch           BIGINT  NOT NULL, -- grows with each claim, and fences the writes of the holder before
    holder          TEXT    NOT NULL, -- the process; '' = none
    due_at          BIGINT  NOT NULL, -- when it may be claimed: the end of the lease while there is a holder
    requested       BOOLEAN NOT NULL, -- since it was claimed
    cursor          TEXT    NOT NULL, -- what the holder before left for the next
    attempts        BIGINT  NOT NULL, -- that failed, since one succeeded
    removal_allowed BOOLEAN NOT NULL, -- the next listing may remove any number of documents
    served_at       BIGINT  NOT NULL, -- when it was claimed or released last
    PRIMARY KEY (tenant, store)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS index_pass_due ON index_pass (due_at);

-- The generation of each app at which its document stores were adapted to its configuration.
CREATE TABLE IF NOT EXISTS index_app (
    tenant     TEXT   PRIMARY KEY,
    generation BIGINT NOT NULL
) WITHOUT ROWID;
