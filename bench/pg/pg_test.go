package pg

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// cluster skips the test where no PostgreSQL is named by STOA_TEST_POSTGRES.
func cluster(t *testing.T) *Cluster {
	t.Helper()
	url := os.Getenv("STOA_TEST_POSTGRES")
	if url == "" {
		t.Skip("STOA_TEST_POSTGRES names no PostgreSQL: the test was NOT run")
	}
	c, err := Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// migrated is an empty database with the product's tables.
func migrated(t *testing.T, c *Cluster, database string) {
	t.Helper()
	if err := c.Fresh(t.Context(), database); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("../../migrations/postgres/*.up.sql")
	if err != nil || len(files) == 0 {
		t.Fatalf("the product's migrations are not there: %v", err)
	}
	for _, name := range files {
		sql, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.exec(t.Context(), c.URL(database), string(sql)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
}

func TestBaselineWritesWholeCalls(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	const database = "stoa_bench_test_baseline"
	t.Cleanup(func() { _ = c.Drop(context.Background(), database) })
	migrated(t, c, database)
	b, err := NewBaseline(t.Context(), c, database, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	calls := 0
	for range 2 {
		rate, err := b.Run(t.Context(), 4, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if rate.RPS <= 0 || rate.P50 <= 0 || rate.P99 < rate.P50 {
			t.Errorf("rate = %+v", rate)
		}
		calls += rate.Calls
	}
	conn, err := pgx.Connect(t.Context(), c.URL(database))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	for _, sql := range []string{
		`SELECT count(*) FROM task WHERE state = 'completed'`,
		`SELECT count(*) FROM run WHERE state = 'completed'`,
		`SELECT count(*) / 4 FROM event`,
		`SELECT count(*) FROM session_turn`,
		`SELECT count(*) FROM event WHERE CAST(body AS JSON) #>> '{message,metadata,tokens_used,total}' = '10'`,
	} {
		var n int
		if err := conn.QueryRow(t.Context(), sql).Scan(&n); err != nil {
			t.Fatal(err)
		}
		if n != calls {
			t.Errorf("%s = %d, want %d", sql, n, calls)
		}
	}
}

func TestDisableRowSecurity(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	const database = "stoa_bench_test_rls"
	t.Cleanup(func() { _ = c.Drop(context.Background(), database) })
	if err := c.Fresh(t.Context(), database); err != nil {
		t.Fatal(err)
	}
	err := c.exec(t.Context(), c.URL(database), `CREATE TABLE a (x INT); CREATE TABLE b (x INT);
		ALTER TABLE a ENABLE ROW LEVEL SECURITY; ALTER TABLE a FORCE ROW LEVEL SECURITY`)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []int{1, 0} {
		if got, err := c.DisableRowSecurity(t.Context(), database); err != nil || got != want {
			t.Errorf("DisableRowSecurity = %d, %v, want %d", got, err, want)
		}
	}
}

func TestClusterCPU(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	if cpu, err := c.CPU(); err != nil || cpu <= 0 {
		t.Errorf("CPU = %v, %v", cpu, err)
	}
	c.postmaster = 0
	if _, err := c.CPU(); !errors.Is(err, ErrRemote) {
		t.Errorf("CPU of a remote cluster: %v, want ErrRemote", err)
	}
}

func TestParseReport(t *testing.T) {
	t.Parallel()
	got, err := parseReport("number of transactions actually processed: 1234\nlatency average = 1 ms\ntps = 411.5 (without initial connection time)\n")
	if err != nil || got.Calls != 1234 || got.RPS != 411.5 {
		t.Errorf("parseReport = %+v, %v", got, err)
	}
	if _, err := parseReport("pgbench: error: no\n"); !errors.Is(err, ErrOutput) {
		t.Errorf("parseReport = %v, want ErrOutput", err)
	}
}

func TestReadLatencies(t *testing.T) {
	t.Parallel()
	prefix := filepath.Join(t.TempDir(), "log")
	for name, text := range map[string]string{".1": "0 1 300 0 0 0\n0 2 100 0 0 0\n", ".1.1": "1 1 200 0 0 0\n"} {
		if err := os.WriteFile(prefix+name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p50, p99, err := readLatencies(prefix)
	if err != nil || p50 != 200*time.Microsecond || p99 != 200*time.Microsecond {
		t.Errorf("p50, p99 = %v, %v, %v", p50, p99, err)
	}
	if _, _, err := readLatencies(prefix); !errors.Is(err, ErrOutput) {
		t.Errorf("without logs: %v, want ErrOutput", err)
	}
}
