-- What limits compare and the state of a store shows is counted as it changes, so that neither an upload nor the indexing of a
-- document reads the rows of all others.

-- The sums over the documents of a store. Triggers write them, so that they are exact whatever changes the rows, also a
-- process of the former version. Every transaction changes them after it has locked its documents and its pass, and the
-- row of generation 0 before those of others.
CREATE TABLE IF NOT EXISTS document_total (
    tenant     TEXT   NOT NULL,
    store      TEXT   NOT NULL COLLATE "C",
    generation BIGINT NOT NULL, -- 0 = documents and their bodies, which belong to no generation
    documents  BIGINT NOT NULL,
    bytes      BIGINT NOT NULL, -- of bodies; 0 in the row of a generation
    chunks     BIGINT NOT NULL, -- that are searchable in the generation
    PRIMARY KEY (tenant, store, generation)
);
SELECT stoa_protect_tenant('document_total');

-- stoa_add_documents counts the documents, bodies or searchable documents that a statement has inserted, deleted or changed.
-- A trigger has a transition table for what its statement does alone, so that each of these is a function.
CREATE OR REPLACE FUNCTION stoa_add_documents() RETURNS TRIGGER LANGUAGE plpgsql AS
$$
BEGIN
    INSERT INTO document_total AS t (tenant, store, generation, documents, bytes, chunks)
        SELECT tenant, store, 0, COUNT(*), 0, 0 FROM added GROUP BY tenant, store
        ON CONFLICT (tenant, store, generation) DO UPDATE SET documents = t.documents + excluded.documents;
    RETURN NULL;
END
$$;

CREATE OR REPLACE FUNCTION stoa_remove_documents() RETURNS TRIGGER LANGUAGE plpgsql AS
$$
BEGIN
    UPDATE document_total t SET documents = t.documents - r.n
        FROM (SELECT tenant, store, COUNT(*) AS n FROM removed GROUP BY tenant, store) r
        WHERE t.tenant = r.tenant AND t.store = r.store AND t.generation = 0;
    RETURN NULL;
END
$$;

CREATE OR REPLACE FUNCTION stoa_add_bodies() RETURNS TRIGGER LANGUAGE plpgsql AS
$$
BEGIN
    INSERT INTO document_total AS t (tenant, store, generation, documents, bytes, chunks)
        SELECT tenant, store, 0, 0, SUM(octet_length(body)), 0 FROM added GROUP BY tenant, store
        ON CONFLICT (tenant, store, generation) DO UPDATE SET bytes = t.bytes + excluded.bytes;
    RETURN NULL;
END
$$;

CREATE OR REPLACE FUNCTION stoa_remove_bodies() RETURNS TRIGGER LANGUAGE plpgsql AS
$$
BEGIN
    UPDATE document_total t SET bytes = t.bytes - r.n
        FROM (SELECT tenant, store, SUM(octet_length(body)) AS n FROM removed GROUP BY tenant, store) r
        WHERE t.tenant = r.tenant AND t.store = r.store AND t.generation = 0;
    RETURN NULL;
END
$$;

CREATE OR REPLACE FUNCTION stoa_change_bodies() RETURNS TRIGGER LANGUAGE plpgsql AS
$$
BEGIN
    UPDATE document_total t SET bytes = t.bytes + c.n
        FROM (SELECT tenant, store, SUM(n) AS n FROM (SELECT tenant, store, octet_length(body) AS n FROM added
                UNION ALL SELECT tenant, store, -octet_length(body) FROM removed) x GROUP BY tenant, store) c
        WHERE t.tenant = c.tenant AND t.store = c.store AND t.generation = 0 AND c.n <> 0;
    RETURN NULL;
END
$$;

CREATE OR REPLACE FUNCTION stoa_add_live() RETURNS TRIGGER LANGUAGE plpgsql AS
$$
BEGIN
    INSERT INTO document_total AS t (tenant, store, generation, documents, bytes, chunks)
        SELECT tenant, store, generation, COUNT(*), 0, SUM(chunks) FROM added GROUP BY tenant, store, generation
        ON CONFLICT (tenant, store, generation) DO UPDATE SET documents = t.documents + excluded.documents, chunks = t.chunks + excluded.chunks;
    RETURN NULL;
END
$$;

CREATE OR REPLACE FUNCTION stoa_remove_live() RETURNS TRIGGER LANGUAGE plpgsql AS
$$
BEGIN
    -- A document may be in two generations: two transactions lock their rows in one order.
    PERFORM 1 FROM document_total t WHERE (t.tenant, t.store, t.generation) IN (SELECT tenant, store, generation FROM removed)
        ORDER BY t.tenant, t.store, t.generation FOR UPDATE;
    UPDATE document_total t SET documents = t.documents - r.documents, chunks = t.chunks - r.chunks
        FROM (SELECT tenant, store, generation, COUNT(*) AS documents, SUM(chunks) AS chunks FROM removed GROUP BY tenant, store, generation) r
        WHERE t.tenant = r.tenant AND t.store = r.store AND t.generation = r.generation;
    RETURN NULL;
END
$$;

CREATE OR REPLACE FUNCTION stoa_change_live() RETURNS TRIGGER LANGUAGE plpgsql AS
$$
BEGIN
    UPDATE document_total t SET chunks = t.chunks + c.n
        FROM (SELECT tenant, store, generation, SUM(n) AS n FROM (SELECT tenant, store, generation, chunks AS n FROM added
                UNION ALL SELECT tenant, store, generation, -chunks FROM removed) x GROUP BY tenant, store, generation) c
        WHERE t.tenant = c.tenant AND t.store = c.store AND t.generation = c.generation AND c.n <> 0;
    RETURN NULL;
END
$$;

CREATE OR REPLACE TRIGGER document_added AFTER INSERT ON document REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION stoa_add_documents();
CREATE OR REPLACE TRIGGER document_removed AFTER DELETE ON document REFERENCING OLD TABLE AS removed
    FOR EACH STATEMENT EXECUTE FUNCTION stoa_remove_documents();
CREATE OR REPLACE TRIGGER document_body_added AFTER INSERT ON document_body REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION stoa_add_bodies();
CREATE OR REPLACE TRIGGER document_body_removed AFTER DELETE ON document_body REFERENCING OLD TABLE AS removed
    FOR EACH STATEMENT EXECUTE FUNCTION stoa_remove_bodies();
CREATE OR REPLACE TRIGGER document_body_changed AFTER UPDATE ON document_body REFERENCING OLD TABLE AS removed NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION stoa_change_bodies();
CREATE OR REPLACE TRIGGER document_live_added AFTER INSERT ON document_live REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION stoa_add_live();
CREATE OR REPLACE TRIGGER document_live_removed AFTER DELETE ON document_live REFERENCING OLD TABLE AS removed
    FOR EACH STATEMENT EXECUTE FUNCTION stoa_remove_live();
CREATE OR REPLACE TRIGGER document_live_changed AFTER UPDATE ON document_live REFERENCING OLD TABLE AS removed NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION stoa_change_live();

-- What was stored before is counted once. The triggers have locked the tables against other writers until this file ends.
-- Forced row-level security hides the rows from their owner, who runs this file.
ALTER TABLE document NO FORCE ROW LEVEL SECURITY;
ALTER TABLE document_body NO FORCE ROW LEVEL SECURITY;
ALTER TABLE document_live NO FORCE ROW LEVEL SECURITY;
ALTER TABLE document_total NO FORCE ROW LEVEL SECURITY;
DELETE FROM document_total;
INSERT INTO document_total (tenant, store, generation, documents, bytes, chunks)
    SELECT tenant, store, 0, COUNT(*), 0, 0 FROM document GROUP BY tenant, store
    UNION ALL SELECT tenant, store, generation, COUNT(*), 0, SUM(chunks) FROM document_live GROUP BY tenant, store, generation;
UPDATE document_total t SET bytes = b.n FROM (SELECT tenant, store, SUM(octet_length(body)) AS n FROM document_body GROUP BY tenant, store) b
    WHERE t.tenant = b.tenant AND t.store = b.store AND t.generation = 0;
ALTER TABLE document FORCE ROW LEVEL SECURITY;
ALTER TABLE document_body FORCE ROW LEVEL SECURITY;
ALTER TABLE document_live FORCE ROW LEVEL SECURITY;
ALTER TABLE document_total FORCE ROW LEVEL SECURITY;

-- What a pass has to do, of one tenant: stores of several tenants may have one name.
DROP INDEX IF EXISTS document_pending;
CREATE INDEX document_pending ON document (tenant, store, id) WHERE state = 'pending';
-- Failed documents are counted by the state of a store.
CREATE INDEX IF NOT EXISTS document_failed ON document (tenant, store, id) WHERE state = 'failed';
