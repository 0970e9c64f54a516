-- Usage is added and never changed; it goes with its app alone.
REVOKE UPDATE ON usage FROM stoa_tenant, stoa_platform;
REVOKE DELETE ON usage FROM stoa_tenant;
