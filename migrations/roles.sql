-- The roles of an installation of Stoa on PostgreSQL, for an administrator to run once in Stoa's database. It can be
-- repeated. Passwords are set afterwards (\password in psql), or pg_hba.conf decides how the logins authenticate.
DO $roles$
DECLARE
    r TEXT;
BEGIN
    -- All statements of a serving process run under one of these two. They cannot log in and own nothing.
    FOREACH r IN ARRAY ARRAY['stoa_tenant', 'stoa_platform'] LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = r) THEN
            EXECUTE format('CREATE ROLE %I NOLOGIN', r);
        END IF;
    END LOOP;
    -- The login that migrates (stoa migrate up, --migrate-database) and restores backups. It owns the tables.
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = {OWNER_LITERAL}) THEN
        CREATE ROLE {OWNER} LOGIN;
    END IF;
    -- The login that serves (--database). It owns nothing, and does not inherit the rights of the two roles: it has them
    -- only where it sets the role, as the server does for each transaction.
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = {LOGIN_LITERAL}) THEN
        CREATE ROLE {LOGIN} LOGIN NOINHERIT;
    END IF;
    -- The login of pg_dump. Row-level security is forced, so pg_dump refuses to read the tables as their owner.
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = {BACKUP_LITERAL}) THEN
        CREATE ROLE {BACKUP} LOGIN BYPASSRLS;
    END IF;
    EXECUTE format('GRANT USAGE, CREATE ON SCHEMA %I TO %I', current_schema(), {OWNER_LITERAL});
    -- To the login as well: it prepares statements before it sets a role.
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO stoa_tenant, stoa_platform, %I', current_schema(), {LOGIN_LITERAL});
END
$roles$;
GRANT stoa_tenant, stoa_platform TO {OWNER}, {LOGIN};
GRANT pg_read_all_data TO {BACKUP};
