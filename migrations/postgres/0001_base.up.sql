-- The two roles under which statements run. Neither logs in, neither owns anything.
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

-- Microseconds since 1970 at the start of the transaction: the one clock of leases and schedules.
CREATE OR REPLACE FUNCTION stoa_now() RETURNS BIGINT LANGUAGE sql STABLE PARALLEL SAFE AS
$$ SELECT CAST(extract(epoch FROM now()) * 1000000 AS BIGINT) $$;

-- The tenant of the transaction, NULL (which equals nothing) where none is set.
CREATE OR REPLACE FUNCTION stoa_tenant() RETURNS TEXT LANGUAGE sql STABLE PARALLEL SAFE AS
$$ SELECT NULLIF(current_setting('stoa.tenant', true), '') $$;

-- stoa_protect_tenant locks table t, which has a column tenant: tenants reach their own rows, the platform all.
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

-- stoa_protect_platform locks table t, which is the platform's alone.
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
