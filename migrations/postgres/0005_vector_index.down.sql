-- Removes the approximate indexes over vectors. The vectors themselves stay.
DO $$
DECLARE
    t REGCLASS;
BEGIN
    FOR t IN SELECT oid FROM pg_class WHERE relkind = 'r' AND relnamespace = to_regnamespace(current_schema()) AND relname ~ '^chunk_hnsw_[0-9a-f]{32}$' LOOP
        EXECUTE format('DROP TABLE %s', t);
    END LOOP;
END
$$;
DROP FUNCTION IF EXISTS stoa_drop_vector_index(TEXT), stoa_create_vector_index(TEXT, BIGINT), stoa_vector_schema();
DROP TABLE IF EXISTS vector_index;
ALTER TABLE document_live DROP COLUMN IF EXISTS indexed_revision;
