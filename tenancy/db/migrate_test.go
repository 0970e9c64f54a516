package db_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"stoa/migrations"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

func migrateDB(t *testing.T, d *db.DB) {
	t.Helper()
	err := d.ChangeSchema(t.Context(), "", func(s *sql.DB) error { return migrations.Up(t.Context(), string(d.Engine()), s) })
	if err != nil {
		t.Fatal(err)
	}
}

// TestMigrateAtOnce starts five processes on one empty database in a cluster without Stoa's roles.
func TestMigrateAtOnce(t *testing.T) {
	t.Parallel()
	d := dbtest.NewPostgres(t)
	empty := createEmptySchema(t, d)
	var wg sync.WaitGroup
	errs := make([]error, 5)
	for i := range errs {
		wg.Go(func() {
			errs[i] = d.ChangeSchema(context.Background(), empty, func(s *sql.DB) error {
				return migrations.Up(context.Background(), "postgres", s, "postgres")
			})
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	err := d.ChangeSchema(t.Context(), empty, func(s *sql.DB) error {
		st, err := migrations.ReadStatus(t.Context(), "postgres", s)
		if err == nil && (st.Current != st.Latest || st.Dirty || st.Current == 0) {
			t.Errorf("status %+v, want the latest and clean", st)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// createEmptySchema returns the URL of a second, empty schema in d's database.
func createEmptySchema(t *testing.T, d *db.DB) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), d.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	if _, err := conn.Exec(t.Context(), "CREATE SCHEMA empty"); err != nil {
		t.Fatal(err)
	}
	return d.URL() + "&search_path=empty"
}

// TestDirty leaves the dirty mark of a process killed within a migration: the next start repairs it.
func TestDirty(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		err := d.ChangeSchema(t.Context(), "", func(s *sql.DB) error {
			_, err := s.ExecContext(t.Context(), "UPDATE stoa_migrations SET dirty = true")
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		migrateDB(t, d)
	})
}

// TestNewer starts this version on the schema of a newer one, complete or interrupted: it changes neither.
func TestNewer(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		for _, dirty := range []bool{false, true} {
			err := d.ChangeSchema(t.Context(), "", func(s *sql.DB) error {
				_, err := s.ExecContext(t.Context(), fmt.Sprintf("UPDATE stoa_migrations SET version = 9999, dirty = %v", dirty))
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			migrateDB(t, d)
			err = d.ChangeSchema(t.Context(), "", func(s *sql.DB) error {
				st, err := migrations.ReadStatus(t.Context(), string(d.Engine()), s)
				if st.Current != 9999 || st.Dirty != dirty {
					t.Errorf("it left the newer schema at %+v", st)
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	})
}
