package ratelimit_test

import (
	"errors"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"stoa/agentsvc"
	"stoa/ratelimit"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// TestClocksDiffer checks that counts follow the backend's clock, whatever the clocks of the processes show.
func TestClocksDiffer(t *testing.T) {
	t.Parallel()
	forEachBackend(t, func(t *testing.T, newBackend func() ratelimit.Backend) {
		id := newTenantID()
		rules := []ratelimit.Rule{callRule(ratelimit.PerUser, ratelimit.Minute, 1000), callRule(ratelimit.PerUser, ratelimit.Month, 3)}
		in := 0
		for _, ahead := range []time.Duration{0, 10 * time.Minute, -10 * time.Minute, 40 * 24 * time.Hour, -400 * 24 * time.Hour} {
			p := newBackend()
			ratelimit.SetClockOffset(p, ahead)
			g, err := ratelimit.New(id, ratelimit.RuleSet{Backend: p, Rules: rules}).ReserveCall(t.Context(), callerAna(""), 0)
			switch {
			case err == nil:
				in++
			case !errors.Is(err, agentsvc.CodeExhausted):
				t.Fatal(err)
			}
			if _, end := ratelimit.Month.BoundsAt(time.Now()); len(g.States) != 2 || !g.States[1].Reset.Equal(end) {
				t.Errorf("a process %v ahead counts in %+v", ahead, g.States)
			}
		}
		if in != 3 {
			t.Errorf("%d were let in, want 3", in)
		}
	})
}

// TestSQLForgets checks that only counters of ended windows are deleted.
func TestSQLForgets(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		old := time.Now().Add(-time.Hour).UnixMicro()
		var b db.Batch
		for _, id := range []string{"acme", "globex"} {
			b.Exec(nil, `INSERT INTO rate_count (tenant, counter, end_at, used) VALUES ($1, 'old', $2, 5)`, id, old)
		}
		if err := d.Platform().Do(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		reserveCall(t, ratelimit.New("acme", ratelimit.RuleSet{Backend: newSQLBackend(d), Rules: []ratelimit.Rule{callRule(ratelimit.PerApp, ratelimit.Day, 3)}}), callerAna(""), 0)
		var rows []string
		var q db.Batch
		q.Query(func(r db.Row) error {
			var tenant, counter string
			err := r.Scan(&tenant, &counter)
			rows = append(rows, tenant+" "+counter[:3])
			return err
		}, `SELECT tenant, counter FROM rate_count ORDER BY tenant`)
		if err := d.Platform().Do(t.Context(), &q); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"acme app", "globex old"}, rows); diff != "" {
			t.Errorf("rows (-want +got):\n%s", diff)
		}
	})
}

// tcpProxy forwards between a client and Redis. When it is broken it accepts data and does not answer.
type tcpProxy struct {
	net.Listener
	target string

	mu     sync.Mutex
	broken bool
	conns  []net.Conn
}

func newTCPProxy(t *testing.T, to string) *tcpProxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &tcpProxy{Listener: l, target: to}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { w.forwardConn(c) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		w.mu.Lock()
		for _, c := range w.conns {
			_ = c.Close()
		}
		w.mu.Unlock()
		all.Wait()
	})
	return w
}

func (p *tcpProxy) forwardConn(from net.Conn) {
	to, err := net.Dial("tcp", p.target)
	if err != nil {
		_ = from.Close()
		return
	}
	p.mu.Lock()
	p.conns = append(p.conns, from, to)
	p.mu.Unlock()
	var both sync.WaitGroup
	for _, pair := range [][2]net.Conn{{from, to}, {to, from}} {
		both.Go(func() {
			buf := make([]byte, 4096)
			for {
				n, err := pair[0].Read(buf)
				if err != nil {
					_ = pair[1].Close()
					return
				}
				p.mu.Lock()
				broken := p.broken
				p.mu.Unlock()
				if !broken {
					_, _ = pair[1].Write(buf[:n])
				}
			}
		})
	}
	both.Wait()
}

func (p *tcpProxy) setBroken(broken bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.broken = broken
}

// TestRedisGoesSilent stops Redis's answers: calls are counted in the database within a bounded time, exactly as many
// as allowed; during the pause no call waits; and when Redis answers again its counts continue.
func TestRedisGoesSilent(t *testing.T) {
	t.Parallel()
	o := redisOptions(t)
	proxy := newTCPProxy(t, o.Addr)
	o.Addr = proxy.Addr().String()
	const timeout = 2 * time.Second // generous: on a busy machine Redis may answer late
	o = ratelimit.BoundRedisOptions(o)
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = timeout, timeout, timeout, timeout
	client := redis.NewClient(o)
	t.Cleanup(func() { _ = client.Close() })
	p := ratelimit.NewFallback(ratelimit.NewRedis(client), newSQLBackend(dbtest.NewSQLite(t)), timeout, "redis", slog.New(slog.DiscardHandler))
	ratelimit.SetFallbackCooldown(p, 300*time.Millisecond)
	l := ratelimit.New(newTenantID(), ratelimit.RuleSet{Backend: p, Rules: []ratelimit.Rule{callRule(ratelimit.PerUser, ratelimit.Day, 3)}})
	took := func(want bool) time.Duration {
		t.Helper()
		began := time.Now()
		if _, ok, _ := reserveCall(t, l, callerAna(""), 0); ok != want {
			t.Fatalf("let in: %v, want %v", ok, want)
		}
		return time.Since(began)
	}
	took(true)
	took(true)
	proxy.setBroken(true)
	if d := took(true); d > timeout+3*time.Second {
		t.Errorf("it took %v until another process counted", d)
	}
	took(true)
	took(true)
	took(false)
	proxy.setBroken(false)
	time.Sleep(400 * time.Millisecond)
	took(true)
	took(false)
}
