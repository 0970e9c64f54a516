package doctor

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"stoa/cmd/stoa/server"
	"stoa/tenancy/db/dbtest"
)

// startRedis starts a Redis that needs the password and may delete keys, and returns its address. Without a Redis on this
// machine it skips the test, or fails it if STOA_TEST_REQUIRE is set.
func startRedis(t *testing.T) string {
	t.Helper()
	program, err := exec.LookPath("redis-server")
	if err != nil {
		dbtest.SkipMissing(t, "there is no redis-server on this machine")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_ = l.Close()
	_, port, _ := net.SplitHostPort(address)
	cmd := exec.Command(program, "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", t.TempDir(), "--requirepass", password, "--maxmemory", "64mb", "--maxmemory-policy", "allkeys-lru")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	for deadline := time.Now().Add(time.Minute); ; {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			_ = conn.Close()
			return address
		}
		if time.Now().After(deadline) {
			t.Fatalf("Redis does not start: %v", err)
		}
		<-time.After(10 * time.Millisecond)
	}
}

// TestRedis asks a Redis that works, one whose settings or password are wrong, and addresses at which there is none.
func TestRedis(t *testing.T) {
	t.Parallel()
	evicting := startRedis(t)
	// It accepts connections and answers nothing.
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	works := os.Getenv("STOA_TEST_REDIS")
	tests := []struct {
		name, url string
		skew      time.Duration
		check     string
		status    Status
		detail    string
	}{
		{"none", "", 0, "redis", Skipped, "no --redis"},
		{"works", works, 0, "redis", OK, "maxmemory-policy noeviction"},
		{"clock", works, 0, "redis_clock", OK, "differ by less than"},
		{"clock ahead", works, -2 * time.Minute, "redis_clock", Failure, "ahead of this process: tokens are refused"},
		{"deletes keys", "redis://:" + password + "@" + evicting, 0, "redis", Warning, "maxmemory-policy allkeys-lru"},
		{"no password", "redis://" + evicting, 0, "redis", Failure, "it needs a password"},
		{"wrong password", "redis://:" + password + "-of-another@" + evicting, 0, "redis", Failure, "it refuses the password"},
		{"nothing answers", "redis://:" + password + "@127.0.0.1:1", 0, "redis", Failure, "127.0.0.1:1: the connection was refused"},
		{"silent", "redis://" + silent.Addr().String(), 0, "redis", Failure, "no answer in time"},
		{"no URL", "redis://:" + password + "@127.0.0.1:port", 0, "redis", Failure, "--redis is no address"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.url == "" && tt.name != "none" {
				dbtest.SkipMissing(t, "STOA_TEST_REDIS names no Redis")
			}
			i := newTestInspector(t, server.Flags{Redis: &tt.url}, nil)
			i.now = func() time.Time { return time.Now().Add(tt.skew) }
			wantCheck(t, i.checkRedis(t.Context()), tt.check, tt.status, tt.detail)
		})
	}
}

// TestClock checks that a slow answer is not taken for a wrong clock.
func TestClock(t *testing.T) {
	t.Parallel()
	began := time.Unix(1000, 0)
	ended := began.Add(10 * time.Second)
	for _, tt := range []struct {
		other  time.Time
		status Status
		detail string
	}{
		{began, OK, "differ by less than 5s"},
		{ended, OK, "differ by less than 5s"},
		{began.Add(-6 * time.Second), Warning, "it is 6s behind this process"},
		{ended.Add(70 * time.Second), Failure, "it is 1m10s ahead of this process"},
	} {
		got := checkClock("clock", "it", tt.other, began, ended)
		if got.Status != tt.status || !strings.Contains(got.Detail, tt.detail) {
			t.Errorf("%v: %s, want %s", fmt.Sprint(got), got.Status, tt.status)
		}
	}
}
