package server

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/redis/go-redis/v9"

	"stoa/agentsvc/runtime"
	"stoa/agentsvc/store/quota"
	"stoa/cmd/stoa/server/otlp"
	"stoa/migrations"
	"stoa/ratelimit"
	"stoa/tenancy/db"
	"stoa/tenancy/keyring"
	"stoa/tenancy/signal"
)

// Storage is the databases of a process and the secrets that belong to them.
type Storage struct {
	// DB is the durable database: a SQLite file of this process alone, or PostgreSQL shared by a fleet.
	DB *db.DB
	// secrets are the admin secret, the master keys and the metrics token.
	secrets processSecrets
	// keyring has the master keys. They wrap the data keys of apps, with which everything secret is encrypted.
	keyring *keyring.Keyring
	// keyWatch makes the process not ready while rows need a master key that it lacks.
	keyWatch *keyWatch
	// Quota bounds what an app stores in DB.
	Quota    *quota.Quota
	inMemory *runtime.InMemoryDB
}

// openStorage opens the durable database, reads the secrets, migrates the schema and opens the in-memory database. The
// role is checked here because only the engine decides whether it is possible: a SQLite file belongs to one process.
func openStorage(ctx context.Context, o Options, t telemetry, c *closers) (s Storage, err error) {
	s.DB, err = db.Open(ctx, o.Settings.Database.URL, db.Options{OnCommit: t.recordCommitGroup, Log: o.Log})
	if err == nil {
		c.add(s.DB.Close)
	}
	// Added after the database, so that it is shut down before: the last export reads gauges from there.
	if t.metrics != nil {
		c.add(otlp.NewShutdown(t.metrics.Shutdown))
	}
	if scheme, _, _ := strings.Cut(o.Settings.Database.URL, "://"); err != nil && scheme != "sqlite" && scheme != "postgres" && scheme != "postgresql" {
		err = settingError{err} // it is the URL of no database
	}
	if err != nil {
		return s, err
	}
	if o.Settings.Role != roleAll && s.DB.Engine() == db.SQLite {
		return s, settingError{fmt.Errorf("--role %s needs PostgreSQL: the one process on a SQLite file does everything", o.Settings.Role)}
	}
	// On SQLite this creates the secrets file next to the database if secrets are missing.
	if s.secrets, err = loadSecrets(ctx, s.DB, o.Settings.Database.URL); err != nil {
		return s, err
	}
	if s.keyring, err = s.secrets.openKeyring(); err != nil {
		return s, settingError{err}
	}
	if err := prepareSchema(ctx, s.DB, o.Settings.Database); err != nil {
		return s, err
	}
	s.keyWatch = &keyWatch{db: s.DB, keys: s.keyring, source: s.secrets.masterKeySource, log: o.Log}
	if err := s.keyWatch.check(ctx); err != nil {
		return s, err
	}
	s.Quota = quota.New(s.DB, quota.Options{
		PerTenant: o.Settings.Database.AppStoredBytes, Log: o.Log,
		Advice: "storage.retention in the app's configuration has old tasks and conversations deleted, and the operator may give apps more (--app-stored-bytes)",
	})
	// The loop of the quota runs in any case; only with a bound does every write of a tenant ask it.
	if o.Settings.Database.AppStoredBytes > 0 {
		s.DB.SetQuota(s.Quota)
	}
	if s.inMemory, err = runtime.OpenInMemoryDB(ctx, s.DB, runtime.InMemoryDBOptions{Log: o.Log}); err != nil {
		return s, err
	}
	c.add(s.inMemory.Close)
	return s, nil
}

// openBus returns the signal bus. It is carried by Redis if that is configured, else by PostgreSQL's LISTEN and NOTIFY;
// on SQLite there is no other process to signal.
func openBus(o Options, d *db.DB, t telemetry, c *closers) (*signal.Bus, error) {
	switch {
	case o.Settings.Database.RedisURL != "":
		options, err := parseRedisURL(o.Settings.Database.RedisURL)
		if err != nil {
			return nil, settingError{fmt.Errorf("--redis: %w", err)}
		}
		// The logger of go-redis is global to the process.
		redis.SetLogger(redisLogger{o.Log})
		client := redis.NewClient(options)
		if t.tracer != nil {
			client.AddHook(redisTracer{})
		}
		t.observeRedis(client, "signals")
		c.add(client.Close)
		bus := signal.New(signal.NewRedisLink(client, "stoa"), o.Log)
		if t.metrics != nil {
			// The connection of the subscriptions is no command: without this an outage is not counted while nothing is sent.
			bus.OnFailure(func() { t.metrics.RecordRedisFailure("signals") })
		}
		return bus, nil
	case d.Engine() == db.Postgres:
		return signal.New(signal.NewPostgresLink(d.URL()), o.Log), nil
	}
	return signal.New(nil, o.Log), nil
}

// openRateCounts returns the counters of rate limits: in Redis if it is configured, else in the database. Redis is
// reached through a client of its own with short timeouts and no retries, because every call of an app waits for its
// counters; the subscriptions of the bus need longer timeouts and retries.
func openRateCounts(o Options, d *db.DB, t telemetry, c *closers) (*ratelimit.Backends, error) {
	var counts redis.UniversalClient
	if o.Settings.Database.RedisURL != "" {
		options, err := parseRedisURL(o.Settings.Database.RedisURL)
		if err != nil {
			return nil, settingError{fmt.Errorf("--redis: %w", err)}
		}
		client := redis.NewClient(ratelimit.BoundRedisOptions(options))
		t.observeRedis(client, "limits")
		c.add(client.Close)
		counts = client
	}
	return ratelimit.NewBackends(d, counts, o.Log), nil
}

// prepareSchema migrates the schema if it is behind, or if the serving login may not use it, unless settings exclude that.
// A login that owns nothing therefore starts on a schema that is up to date. Concurrent starts are serialised by the
// migration's lock.
func prepareSchema(ctx context.Context, d *db.DB, settings DatabaseSettings) error {
	gap, err := findSchemaGap(ctx, d)
	if err != nil || gap == "" {
		return err
	}
	if settings.NoMigrate {
		return fmt.Errorf("%s; with --no-migrate this process does not change that: run stoa migrate up as the login that owns the tables, then start again", gap)
	}
	if err := MigrateSchema(ctx, d, settings.MigrateURL); err != nil {
		return fmt.Errorf("%s: %w", gap, err)
	}
	if gap, err = findSchemaGap(ctx, d); err == nil && gap != "" {
		err = errors.New(gap)
	}
	return err
}

// findSchemaGap returns what keeps this version from serving on the schema of d with d's own login, "" if nothing does.
func findSchemaGap(ctx context.Context, d *db.DB) (gap string, err error) {
	err = d.ChangeSchema(ctx, "", func(s *sql.DB) error {
		if d.Engine() == db.Postgres {
			if has, err := migrations.HasRoles(ctx, s); err != nil || !has {
				gap = "the login of the database may not act under the roles stoa_tenant and stoa_platform (stoa migrate roles prints the SQL)"
				return err
			}
		}
		status, err := migrations.ReadStatus(ctx, string(d.Engine()), s)
		switch {
		case err != nil || status.IsCurrent():
			return err
		case status.Obstacle() != "":
			return errors.New(status.Obstacle())
		case status.Dirty:
			gap = fmt.Sprintf("migration %d of %d was cut off, or another process is executing it", status.Current, status.Latest)
		default:
			gap = fmt.Sprintf("the schema is at %d of %d", status.Current, status.Latest)
		}
		return nil
	})
	return gap, err
}

// MigrateSchema migrates the schema of d to this version. On PostgreSQL it logs in at the URL as, or with d's own
// login if as is "", and grants d's login the right to act under Stoa's database roles, which row-level security is
// written for.
func MigrateSchema(ctx context.Context, d *db.DB, as string) error {
	return d.ChangeSchema(ctx, as, func(s *sql.DB) error {
		var logins []string
		if d.Engine() == db.Postgres {
			login, err := findLogin(ctx, d, as, s)
			if err != nil {
				return err
			}
			logins = append(logins, login)
		}
		return migrations.Up(ctx, string(d.Engine()), s, logins...)
	})
}

// findLogin returns the user name of the login that d was opened with. If the same login migrates, it asks the
// database, because the URL may leave the name to a default.
func findLogin(ctx context.Context, d *db.DB, as string, s *sql.DB) (string, error) {
	if as == "" || as == d.URL() {
		var login string
		err := s.QueryRowContext(ctx, "SELECT current_user").Scan(&login)
		return login, err
	}
	u, err := url.Parse(d.URL())
	if err != nil || u.User.Username() == "" {
		return "", errors.New("with a migrating login of its own, the database URL must name its user, as in postgres://USER@HOST/NAME")
	}
	return u.User.Username(), nil
}
