-- What limits compare and the state of a store shows is counted as it changes, so that neither an upload nor the indexing of a
-- document reads the rows of all others.

-- The sums over the documents of a store. Triggers write them, so that they are exact whatever changes the rows.
CREATE TABLE IF NOT EXISTS document_total (
    tenant     TEXT   NOT NULL,
    store      TEXT   NOT NULL,
    generation BIGINT NOT NULL, -- 0 = documents and their bodies, which belong to no generation
    documents  BIGINT NOT NULL,
    bytes      BIGINT NOT NULL, -- of bodies; 0 in the row of a generation
    chunks     BIGINT NOT NULL, -- that are searchable in the generation
    PRIMARY KEY (tenant, store, generation)
) WITHOUT ROWID;

CREATE TRIGGER IF NOT EXISTS document_added AFTER INSERT ON document BEGIN
    INSERT INTO document_total (tenant, store, generation, documents, bytes, chunks) VALUES (new.tenant, new.store, 0, 1, 0, 0)
        ON CONFLICT (tenant, store, generation) DO UPDATE SET documents = documents + 1;
END;
CREATE TRIGGER IF NOT EXISTS document_removed AFTER DELETE ON document BEGIN
    UPDATE document_total SET documents = documents - 1 WHERE tenant = old.tenant AND store = old.store AND generation = 0;
END;
CREATE TRIGGER IF NOT EXISTS document_body_added AFTER INSERT ON document_body BEGIN
    INSERT INTO document_total (tenant, store, generation, documents, bytes, chunks) VALUES (new.tenant, new.store, 0, 0, octet_length(new.body), 0)
        ON CONFLICT (tenant, store, generation) DO UPDATE SET bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER IF NOT EXISTS document_body_removed AFTER DELETE ON document_body BEGIN
    UPDATE document_total SET bytes = bytes - octet_length(old.body) WHERE tenant = old.tenant AND store = old.store AND generation = 0;
END;
CREATE TRIGGER IF NOT EXISTS document_body_changed AFTER UPDATE OF body ON document_body BEGIN
    UPDATE document_total SET bytes = bytes + octet_length(new.body) - octet_length(old.body)
        WHERE tenant = new.tenant AND store = new.store AND generation = 0;
END;
CREATE TRIGGER IF NOT EXISTS document_live_added AFTER INSERT ON document_live BEGIN
    INSERT INTO document_total (tenant, store, generation, documents, bytes, chunks) VALUES (new.tenant, new.store, new.generation, 1, 0, new.chunks)
        ON CONFLICT (tenant, store, generation) DO UPDATE SET documents = documents + 1, chunks = chunks + excluded.chunks;
END;
CREATE TRIGGER IF NOT EXISTS document_live_removed AFTER DELETE ON document_live BEGIN
    UPDATE document_total SET documents = documents - 1, chunks = chunks - old.chunks
        WHERE tenant = old.tenant AND store = old.store AND generation = old.generation;
END;
CREATE TRIGGER IF NOT EXISTS document_live_changed AFTER UPDATE OF chunks ON document_live BEGIN
    UPDATE document_total SET chunks = chunks + new.chunks - old.chunks
        WHERE tenant = new.tenant AND store = new.store AND generation = new.generation;
END;

-- What was stored before is counted once.
DELETE FROM document_total;
INSERT INTO document_total (tenant, store, generation, documents, bytes, chunks)
    SELECT d.tenant, d.store, 0, COUNT(*), COALESCE((SELECT SUM(octet_length(b.body)) FROM document_body b WHERE b.tenant = d.tenant AND b.store = d.store), 0), 0
        FROM document d GROUP BY d.tenant, d.store
    UNION ALL SELECT tenant, store, generation, COUNT(*), 0, SUM(chunks) FROM document_live GROUP BY tenant, store, generation;

-- What a pass has to do, of one tenant: stores of several tenants may have one name.
DROP INDEX IF EXISTS document_pending;
CREATE INDEX document_pending ON document (tenant, store, id) WHERE state = 'pending';
-- Failed documents are counted by the state of a store.
CREATE INDEX IF NOT EXISTS document_failed ON document (tenant, store, id) WHERE state = 'failed';
