package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"stoa/bench/proc"
	"stoa/bench/stoa"
)

const (
	fairTurn      = 5 * time.Second // that an app without a run at work waits where all workers are busy
	blockingCalls = 700
	settleTime    = 3 * time.Second // until an attack has taken all that it gets
)

// attack is what one tenant does to the others.
type attack struct {
	id     string
	name   string
	app    func(try int) (stoa.App, bool) // the try-th form of its app, until one is accepted
	bodies [][]byte                       // sent over and over, one connection each
	once   bool                           // they are sent once, and not waited for
	queued bool                           // a queued run of the quiet tenant is measured, not its live calls
	memory bool                           // the server's memory and its /health are measured as well
}

// attacks measures a quiet tenant during each attack and alone, in turn, with the server's default settings.
func attacks(ctx context.Context, l *lab, wanted func(...string) bool, r *report) error {
	engines := []string{"SQLite"}
	if l.cluster != nil {
		engines = append(engines, "PostgreSQL")
	}
	for _, engine := range engines {
		for _, a := range attackForms() {
			if !wanted("P9", a.id) {
				continue
			}
			url := l.sqlite()
			if engine == "PostgreSQL" {
				name, err := l.database(ctx)
				if err != nil {
					return err
				}
				url = l.cluster.URL(name)
			}
			if err := l.attacked(ctx, url, engine, a, r); err != nil {
				return fmt.Errorf("%s on %s: %w", a.name, engine, err)
			}
		}
	}
	return nil
}

func attackForms() []attack {
	only := func(app stoa.App) func(int) (stoa.App, bool) {
		return func(try int) (stoa.App, bool) { return app, try == 0 }
	}
	expanding := [][]byte{partsOf(4 << 20)}
	for range 24 {
		expanding = append(expanding, partsOf(1<<20-1024))
	}
	long := message(true, strings.Repeat("abcde", 2<<20/5))
	return []attack{
		{id: "BODIES", name: "expanding bodies", app: only(stoa.Plain("attacker")), bodies: expanding, memory: true},
		{id: "PATTERNS", name: "hostile patterns", app: hostile, bodies: [][]byte{long, long, long, long}},
		{id: "PAUSES", name: "paused runs", app: only(stoa.Slow("attacker", 10*time.Minute)), bodies: repeat(message(false, text), 50), once: true, queued: true},
		{id: "BLOCKING", name: fmt.Sprintf("%d slow blocking calls", blockingCalls), app: only(stoa.Slow("attacker", 10*time.Minute)), bodies: repeat(message(true, text), blockingCalls)},
	}
}

// hostile is an app whose guardrails take the more time the longer a text is: with the most repetitions that are accepted.
func hostile(try int) (stoa.App, bool) {
	repetitions := 100 >> try
	patterns := make([]string, 20)
	for i := range patterns {
		patterns[i] = fmt.Sprintf("(a|b|c|d|e){%d}Z%d", repetitions, i)
	}
	app := stoa.Plain("attacker")
	config := app.Config.(map[string]any)
	config["guardrails"] = map[string]any{"g": map[string]any{"output": map[string]any{"content": map[string]any{"enabled": true, "blocked_patterns": patterns, "action": "block"}},
		"input": map[string]any{"injection": map[string]any{"enabled": true, "patterns": patterns, "action": "block"}}}}
	config["agents"] = map[string]any{"assistant": map[string]any{"llm": "demo", "guardrails": "g"}}
	return app, repetitions > 0
}

func partsOf(size int) []byte {
	head := `{"jsonrpc":"2.0","id":1,"method":"message:send","params":{"message":{"role":"user","parts":[{}`
	tail := `]}}}`
	return []byte(head + strings.Repeat(",{}", (size-len(head)-len(tail))/3) + tail)
}

func message(blocking bool, text string) []byte {
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":1,"method":"message:send","params":{"configuration":{"blocking":%t},`+
		`"message":{"role":"user","parts":[{"type":"text","text":%q}]}}}`, blocking, text)
}

func repeat(body []byte, n int) [][]byte {
	all := make([][]byte, n)
	for i := range all {
		all[i] = body
	}
	return all
}

// attacked adds the rows of one attack on one engine.
func (l *lab) attacked(ctx context.Context, url, engine string, a attack, r *report) error {
	s, err := l.stoa(ctx, url)
	if err != nil {
		return err
	}
	defer s.Stop()
	quiet, err := s.Create(ctx, stoa.Plain("quiet"))
	if err != nil {
		return err
	}
	token := ""
	for try := 0; token == ""; try++ {
		app, more := a.app(try)
		if !more {
			return err
		}
		token, err = s.Create(ctx, app)
	}
	var ratios, waits, peaks, health series
	for range l.rounds {
		alone, err := l.quietly(ctx, s, quiet, a.queued)
		if err != nil {
			return err
		}
		idle, err := proc.RSS(s.PID())
		if err != nil {
			return err
		}
		stop, seen := a.begin(ctx, s, token)
		time.Sleep(settleTime)
		during, err := l.quietly(ctx, s, quiet, a.queued)
		stop()
		if err != nil {
			return err
		}
		progress("%s, %s: alone %v, during the attack %v", a.name, engine, alone, during)
		ratios = append(ratios, float64(during)/float64(alone))
		waits = append(waits, float64(max(0, during-alone))/float64(fairTurn))
		peaks = append(peaks, float64(seen.peak-idle)/float64(a.size()))
		health = append(health, seen.health.Seconds()*1000)
		for _, on := range []bool{false, true} { // its runs end
			if err := s.Turn(ctx, "attacker", on); err != nil {
				return err
			}
		}
	}
	if a.queued {
		r.rows = append(r.rows, atMost("P9", fmt.Sprintf("%s, %s: what a queued run of a quiet tenant waits longer (p99), in fair turns of %v", a.name, engine, fairTurn), 1, waits))
	} else {
		r.rows = append(r.rows, atMost("P9", fmt.Sprintf("%s, %s: a quiet tenant's p99 ÷ alone, live calls one after the other", a.name, engine), 2, ratios))
	}
	if a.memory {
		r.rows = append(r.rows, atMost("P9", fmt.Sprintf("%s, %s: peak memory (RSS) over idle ÷ the bytes of the bodies under way", a.name, engine), 4, peaks),
			atMost("P9", fmt.Sprintf("%s, %s: the slowest /health, ms", a.name, engine), 100, health))
	}
	return nil
}

// quietly returns the p99 of the quiet tenant's live calls, or of the waiting of its queued runs.
func (l *lab) quietly(ctx context.Context, s *stoa.Server, token string, queued bool) (time.Duration, error) {
	if queued {
		ms, err := l.pickups(ctx, s, token)
		return time.Duration(ms * float64(time.Millisecond)), err
	}
	call, err := s.Blocking(token, "assistant", text)
	if err != nil {
		return 0, err
	}
	m, err := l.drive(ctx, s.Process, call, 1)
	return m.p99, err
}

func (a attack) size() (n int) {
	for _, b := range a.bodies {
		n += len(b)
	}
	return n
}

// observed is what a server did during an attack.
type observed struct {
	peak   int64         // its largest memory
	health time.Duration // its slowest answer to /health
}

// begin attacks until stop is called, which waits for the end of it. Seen may be read after stop.
func (a attack) begin(ctx context.Context, s *stoa.Server, token string) (stop func(), seen *observed) {
	ctx, cancel := context.WithCancel(ctx)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: len(a.bodies)}}
	var under sync.WaitGroup
	for _, body := range a.bodies {
		under.Go(func() {
			for again := true; again && ctx.Err() == nil; again = !a.once {
				req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+"/agents/assistant", bytes.NewReader(body))
				if err != nil {
					return
				}
				req.Header.Set("Authorization", "Bearer "+token)
				req.Header.Set("Content-Type", "application/json")
				if resp, err := client.Do(req); err == nil { // whatever the answer is
					_, _ = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
				}
			}
		})
	}
	seen = &observed{}
	under.Go(func() {
		for tick := time.NewTicker(20 * time.Millisecond); ctx.Err() == nil; <-tick.C {
			if n, err := proc.RSS(s.PID()); err == nil {
				seen.peak = max(seen.peak, n)
			}
		}
	})
	under.Go(func() {
		for tick := time.NewTicker(20 * time.Millisecond); ctx.Err() == nil; <-tick.C {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/health", nil)
			if err != nil {
				return
			}
			began := time.Now()
			if resp, err := client.Do(req); err == nil {
				_ = resp.Body.Close()
				seen.health = max(seen.health, time.Since(began))
			}
		}
	})
	return func() { cancel(); under.Wait(); client.CloseIdleConnections() }, seen
}
