-- Approximate indexes over the vectors of large document stores, with the extension vector (pgvector). Nothing here needs the
-- extension: the bodies of the functions are read when they run. Package agentsvc/document/corpus explains the indexes.
--
-- Each index has a table of its own, chunk_hnsw_ and 32 hexadecimal digits, with a copy of a store's vectors and an index of
-- the type HNSW. One index over the vectors of all tenants would return too few rows for a tenant with a small share of
-- them. The tables have forced row-level security as every table of tenants. They are derived: what is in them can be
-- made again from chunk_vector, and a search compares the vectors of a document that is not in them one by one.

-- The revision of a document whose vectors are in the approximate index of its generation; 0 = none. The former version
-- of the program replaces documents without changing it, so that they count as not indexed.
ALTER TABLE document_live ADD COLUMN IF NOT EXISTS indexed_revision BIGINT NOT NULL DEFAULT 0;

-- The approximate indexes that there are.
CREATE TABLE IF NOT EXISTS vector_index (
    tenant     TEXT   NOT NULL,
    store      TEXT   NOT NULL COLLATE "C",
    generation BIGINT NOT NULL,
    id         TEXT   NOT NULL, -- the hexadecimal digits in the name of its table
    dimensions BIGINT NOT NULL, -- of its vectors
    PRIMARY KEY (tenant, store, generation)
);
SELECT stoa_protect_tenant('vector_index');

-- stoa_vector_schema returns the schema of the extension vector, NULL if there is none that can be used: HNSW returns too
-- few rows under a filter before version 0.8.
CREATE OR REPLACE FUNCTION stoa_vector_schema() RETURNS TEXT LANGUAGE sql STABLE AS
$$
    SELECT CAST(n.nspname AS TEXT) FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace
    WHERE e.extname = 'vector' AND has_schema_privilege(n.oid, 'USAGE')
        AND CAST(string_to_array(substring(e.extversion FROM '^\d{1,5}\.\d{1,5}'), '.') AS INTEGER[]) >= ARRAY[0, 8]
$$;

-- stoa_create_vector_index creates the table of an approximate index.
--
-- The login that serves owns nothing and may not create tables, so this function, and the next, run with the rights of
-- their owner. That is safe: they are for the role of the platform's background work alone, and neither a caller nor a
-- tenant's configuration can name what they change. The name of the table is a constant and digits that are checked,
-- quoted as an identifier; the other argument is a number within bounds; the schema of the extension is read from the
-- catalogue. search_path is fixed below, so that no object of a caller is found in the place of another. The table is
-- created with its index, empty, so that no statement holds a lock for long; rows are inserted under the tenant's role.
CREATE OR REPLACE FUNCTION stoa_create_vector_index(id TEXT, dimensions BIGINT) RETURNS VOID LANGUAGE plpgsql SECURITY DEFINER AS
$$
DECLARE
    name      TEXT := 'chunk_hnsw_' || id;
    extension TEXT := stoa_vector_schema();
BEGIN
    IF (id ~ '^[0-9a-f]{32}$' AND dimensions BETWEEN 1 AND 4000) IS NOT TRUE THEN
        RAISE EXCEPTION 'stoa_create_vector_index: the id must be 32 hexadecimal digits, the dimensions 1 to 4000';
    END IF;
    IF extension IS NULL THEN
        RAISE EXCEPTION 'stoa_create_vector_index: the owner of this function finds no extension vector, version 0.8 or later';
    END IF;
    EXECUTE format('DROP TABLE IF EXISTS %I', name);
    EXECUTE format('CREATE TABLE %I (tenant TEXT NOT NULL, document TEXT NOT NULL COLLATE "C", revision BIGINT NOT NULL, ordinal BIGINT NOT NULL,
        embedding %I.halfvec(%s) NOT NULL, PRIMARY KEY (tenant, document, revision, ordinal))', name, extension, dimensions);
    EXECUTE format('CREATE INDEX ON %I USING hnsw (embedding %I.halfvec_ip_ops)', name, extension);
    PERFORM stoa_protect_tenant(CAST(quote_ident(name) AS REGCLASS));
END
$$;

-- stoa_drop_vector_index drops the table of an approximate index, if there is one. See stoa_create_vector_index.
CREATE OR REPLACE FUNCTION stoa_drop_vector_index(id TEXT) RETURNS VOID LANGUAGE plpgsql SECURITY DEFINER AS
$$
BEGIN
    IF (id ~ '^[0-9a-f]{32}$') IS NOT TRUE THEN
        RAISE EXCEPTION 'stoa_drop_vector_index: the id must be 32 hexadecimal digits';
    END IF;
    EXECUTE format('DROP TABLE IF EXISTS %I', 'chunk_hnsw_' || id);
END
$$;

DO $$
BEGIN
    -- pg_catalog comes first where it is not named. Others wait behind a DROP TABLE that waits for a reader of the table.
    EXECUTE format('ALTER FUNCTION stoa_create_vector_index(TEXT, BIGINT) SET search_path = %I, pg_temp', current_schema());
    EXECUTE format('ALTER FUNCTION stoa_drop_vector_index(TEXT) SET search_path = %I, pg_temp', current_schema());
    ALTER FUNCTION stoa_create_vector_index(TEXT, BIGINT) SET lock_timeout = '2s';
    ALTER FUNCTION stoa_drop_vector_index(TEXT) SET lock_timeout = '2s';
END
$$;
REVOKE ALL ON FUNCTION stoa_create_vector_index(TEXT, BIGINT), stoa_drop_vector_index(TEXT) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION stoa_create_vector_index(TEXT, BIGINT), stoa_drop_vector_index(TEXT) TO stoa_platform;
