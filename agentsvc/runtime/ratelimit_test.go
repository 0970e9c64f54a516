package runtime_test

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/config"
	"stoa/agentsvc/queue"
	"stoa/agentsvc/runtime"
	"stoa/agentsvc/task"
	"stoa/ratelimit"
	"stoa/tenancy"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

const limitSource = `
llms:
  demo:
    provider: scripted
    script:
      - when: {text: "^sum$"}
        then: [{call: {tool: calc, arguments: {expression: "1+1"}}}]
        usage: {input_tokens: 100, output_tokens: 11}
      - when: {text: "^ask$"}
        then: [{ask: "Which city?"}]
        usage: {input_tokens: 5, output_tokens: 5}
      - when: {text: "^break$"}
        then: [{fail: {status: 400, message: "no"}}]
      - then: [{say: "You said: {{text}}"}]
        usage: {input_tokens: 30, output_tokens: 12}
tools: {calc: {type: function, handler: calculator}}
agents: {helper: {llm: demo, tools: [calc]}}
rate_limiting:
  enabled: true
  scope: user
  backend: sql
  sql_database: %s
  limits: [{type: token, window: month, limit: 10000}, {type: count, window: month, limit: 50}]
databases: {own: %s}
`

func newCaller(context agentsvc.ContextID) ratelimit.Caller {
	return ratelimit.Caller{Agent: "helper", Owner: ana, Session: context}
}

// countedUsage returns the calls and tokens that are counted for ana. It adds one call.
func countedUsage(t *testing.T, a *runtime.Runtime) (calls, tokens int64) {
	t.Helper()
	g, err := a.RateLimits().CountCall(t.Context(), newCaller(""), agentsvc.Message{})
	if err != nil {
		t.Fatal(err)
	}
	a.RateLimits().ReleaseTokens(newCaller(""), g.Reservation)
	for _, s := range g.States {
		if s.Unit == ratelimit.Tokens {
			tokens = s.Used - g.Reservation.Tokens
		} else {
			calls = s.Used
		}
	}
	return calls, tokens
}

// withReservation returns sub with the reservation that admission makes.
func withReservation(t *testing.T, a *runtime.Runtime, sub task.Submission) task.Submission {
	t.Helper()
	g, err := a.RateLimits().CountCall(t.Context(), newCaller(sub.Message.Context), sub.Message)
	if err != nil {
		t.Fatal(err)
	}
	sub.LimitReservation = &task.LimitReservation{Note: g.Reservation.EncodeText()}
	return sub
}

// waitForTokens waits until that many tokens are counted, which happens right after the end of the turn.
func waitForTokens(t *testing.T, a *runtime.Runtime, want int64) {
	t.Helper()
	var got int64
	for range 200 {
		if _, got = countedUsage(t, a); got == want {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if got != want {
		t.Errorf("%d tokens are counted, want %d", got, want)
	}
}

// TestLimitsCountUsage checks that exactly the usage of turns is counted on every path, in the platform's database and
// in an app's own.
func TestLimitsCountUsage(t *testing.T) {
	t.Parallel()
	for name, configured := range map[string]func(t *testing.T) (name, yaml string){
		"platform": func(t *testing.T) (string, string) { yaml, _ := newAppSQLite(t); return `""`, yaml },
		"sqlite":   func(t *testing.T) (string, string) { yaml, _ := newAppSQLite(t); return "own", yaml },
		"postgres": func(t *testing.T) (string, string) { yaml, _ := newAppPostgres(t); return "own", yaml },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			which, yaml := configured(t)
			platform := dbtest.NewSQLite(t)
			a := newAppWith(t, platform, mustParse(t, fmt.Sprintf(limitSource, which, yaml), config.Options{}), privateNetworkTenant, slog.New(slog.DiscardHandler))
			submission := func(text string) task.Submission {
				sub := newSubmission(text)
				sub.Message.Context = "c"
				return withReservation(t, a, sub)
			}
			runTurn(t, a, submission("hello"))
			waitForTokens(t, a, 42)
			runTurn(t, a, submission("sum")) // two model calls
			waitForTokens(t, a, 42+111+42)
			runTurn(t, a, submission("break"))
			waitForTokens(t, a, 195)
			requested, _ := runTurn(t, a, submission("ask"))
			waitForTokens(t, a, 205)
			answer := submission("Rome")
			answer.Message.Task = requested.ID
			runTurn(t, a, answer)
			waitForTokens(t, a, 247)
			if _, err := a.Tasks().Messages.Submit(t.Context(), submission(strings.Repeat("long ", 200))); err != nil { // through the queue
				t.Fatal(err)
			}
			waitForTokens(t, a, 289)
			sub := submission("twice")
			sub.Message.ID = "m"
			runTurn(t, a, sub)
			waitForTokens(t, a, 331)
			again := submission("twice")
			again.Message.ID = "m"
			runTurn(t, a, again)
			if again.LimitReservation.Recorded {
				t.Error("a repetition holds what is reserved for it")
			}
			a.RateLimits().ReleaseTokens(newCaller("c"), ratelimit.ParseTokenReservation(again.LimitReservation.Note))
			waitForTokens(t, a, 331)
			if n := countRateRows(t, platform); (n > 0) != (name == "platform") {
				t.Errorf("the platform's database has %d counters", n)
			}
		})
	}
}

func countRateRows(t *testing.T, d *db.DB) int {
	return queryInt(t, d, `SELECT COUNT(*) FROM rate_count`)
}

func queryInt(t *testing.T, d *db.DB, query string) (n int) {
	t.Helper()
	var b db.Batch
	b.Query(func(r db.Row) error { return r.Scan(&n) }, query)
	if err := d.Platform().Do(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestLimitsReserveWhatTurnsUse checks that turns reserve what earlier turns of the agent have used.
func TestLimitsReserveWhatTurnsUse(t *testing.T) {
	t.Parallel()
	yaml, _ := newAppSQLite(t)
	a := newAppWith(t, dbtest.NewSQLite(t), mustParse(t, fmt.Sprintf(limitSource, `""`, yaml), config.Options{}), privateNetworkTenant, slog.New(slog.DiscardHandler))
	reserved := func(text string) int64 {
		sub := withReservation(t, a, newSubmission(text))
		r := ratelimit.ParseTokenReservation(sub.LimitReservation.Note)
		a.RateLimits().ReleaseTokens(newCaller(""), r)
		return r.Tokens
	}
	if n := reserved("four"); n != 2 {
		t.Errorf("the first message holds %d tokens", n)
	}
	runTurn(t, a, withReservation(t, a, newSubmission("sum")))
	waitForTokens(t, a, 153)
	if n := reserved("four"); n != 153 {
		t.Errorf("after a turn of 153 tokens a message holds %d", n)
	}
	if n := reserved(strings.Repeat("four", 1000)); n != 1001 {
		t.Errorf("a message of 1,000 tokens holds %d", n)
	}
	runTurn(t, a, withReservation(t, a, newSubmission("hello")))
	waitForTokens(t, a, 195)
	if n := reserved("four"); n != 126 {
		t.Errorf("after a turn of 42 more a message holds %d", n)
	}
}

// TestLimitsDatabaseUnavailable checks that the platform's database counts while the app's own refuses or does not
// respond.
func TestLimitsDatabaseUnavailable(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	for name, port := range map[string]int{"refuses": 9, "says nothing": silent.Addr().(*net.TCPAddr).Port} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nowhere := fmt.Sprintf("{driver: postgres, host: 127.0.0.1, port: %d, database: d, username: u}", port)
			platform := dbtest.NewSQLite(t)
			a := newAppWith(t, platform, mustParse(t, fmt.Sprintf(limitSource, "own", nowhere), config.Options{}), privateNetworkTenant, slog.New(slog.DiscardHandler))
			in, began := 0, time.Now()
			for range 60 {
				_, err := a.RateLimits().CountCall(t.Context(), newCaller(""), agentsvc.Message{})
				if err == nil {
					in++
				} else if !errors.Is(err, agentsvc.CodeExhausted) {
					t.Fatal(err)
				}
			}
			if n := countRateRows(t, platform); in != 50 || n != 2 {
				t.Errorf("%d calls were let in, and the platform has %d counters", in, n)
			}
			if took := time.Since(began); took > 4500*time.Millisecond {
				t.Errorf("it took %v", took)
			}
		})
	}
}

// TestLimitsOfTries checks that a turn's usage is counted once, and its reservation released once, with any number of
// attempts.
func TestLimitsOfTries(t *testing.T) {
	t.Parallel()
	yaml, _ := newAppSQLite(t)
	source := strings.Replace(fmt.Sprintf(limitSource, `""`, yaml), "      - then:", "      - when: {tool_result: calc}\n        then: [{fail: {status: 503, message: later}}]\n      - then:", 1)
	platform := dbtest.NewSQLite(t)
	a := newAppWith(t, platform, mustParse(t, source, config.Options{}), privateNetworkTenant, slog.New(slog.DiscardHandler), func(h *runtime.Dependencies) {
		h.Retry = queue.Retry{MaxRetries: 3, InitialDelay: 5 * time.Millisecond, MaxDelay: 5 * time.Millisecond}
	})
	for i := range int64(3) {
		outcome, _ := runTurn(t, a, withReservation(t, a, newSubmission("sum")))
		if outcome.Status.State != agentsvc.Failed {
			t.Fatalf("%s %q", outcome.Status.State, outcome.Status.Message.Text())
		}
		waitForTokens(t, a, 111*(i+1))
	}
	if n := queryInt(t, platform, `SELECT MIN(attempts) FROM run`); n != 4 {
		t.Errorf("a turn was tried %d times, want 4", n)
	}
}

// TestOperatorsLimitsStayWhereTheyAre checks that the operator's limits are counted in one place, whichever backend the
// configuration selects: a change of it resets nothing.
func TestOperatorsLimitsStayWhereTheyAre(t *testing.T) {
	t.Parallel()
	platform := dbtest.NewSQLite(t)
	counts := ratelimit.NewBackends(platform, nil, slog.New(slog.DiscardHandler))
	in := 0
	for _, limiting := range []string{"{}", "{enabled: true, limits: [{type: count, window: day, limit: 2}]}", "{enabled: true, backend: sql, limits: [{type: count, window: day, limit: 2}]}", "{}"} {
		cfg := mustParse(t, "llms: {demo: {provider: scripted}}\nagents: {helper: {llm: demo}}\nrate_limiting: "+limiting, config.Options{})
		tenant := runtime.Tenant{ID: "acme", Name: "acme", Limits: tenancy.Limits{Rates: []tenancy.Rate{{Per: "app", Type: "count", Window: "month", Limit: 5}}}}
		a := newAppWith(t, platform, cfg, tenant, slog.New(slog.DiscardHandler), func(h *runtime.Dependencies) { h.RateCounts = counts })
		for range 3 {
			if _, err := a.RateLimits().CountCall(t.Context(), newCaller(""), agentsvc.Message{}); err == nil {
				in++
			}
		}
	}
	if in != 5 {
		t.Errorf("%d were let in, want 5", in)
	}
}

// TestWordsOfLimits checks that every value that a configuration or an operator may set in a limit has an effect.
func TestWordsOfLimits(t *testing.T) {
	t.Parallel()
	d := dbtest.NewSQLite(t)
	for _, per := range []string{"session", "user", "app", "agent", "key"} {
		for _, kind := range []string{"count", "token"} {
			for _, window := range []string{"minute", "hour", "day", "week", "month"} {
				limiting, rates := "{}", []tenancy.Rate{{Per: per, Type: kind, Window: window, Limit: 7}}
				if per == "session" || per == "user" {
					limiting, rates = fmt.Sprintf("{enabled: true, scope: %s, limits: [{type: %s, window: %s, limit: 7}]}", per, kind, window), nil
				}
				cfg := mustParse(t, "llms: {demo: {provider: scripted}}\nagents: {helper: {llm: demo}}\nrate_limiting: "+limiting, config.Options{})
				a, err := runtime.Build(cfg, runtime.Tenant{ID: "acme", Name: "acme", Limits: tenancy.Limits{Rates: rates}}, runtime.Dependencies{DB: d, Log: slog.New(slog.DiscardHandler)})
				if err != nil {
					t.Fatal(err)
				}
				caller := newCaller("")
				caller.Owner.Subject = "key:" + agentsvc.NewID()
				g, err := a.RateLimits().CountCall(t.Context(), caller, agentsvc.Message{})
				if want := per + "-" + kind + "-" + window; err != nil || len(g.States) != 1 || g.States[0].Name() != want || g.States[0].Limit != 7 {
					t.Errorf("%s: %+v, %v", want, g.States, err)
				}
			}
		}
	}
}

// TestLimitsExample runs the example until its limit is reached.
func TestLimitsExample(t *testing.T) {
	t.Parallel()
	src, err := os.ReadFile("../../examples/limits.yaml")
	if err != nil {
		t.Fatal(err)
	}
	src = []byte(strings.Replace(string(src), "window: minute", "window: day", 1)) // a minute may end during the test
	a := newAppWith(t, dbtest.NewSQLite(t), mustParse(t, string(src), config.Options{}), runtime.Tenant{ID: "acme", Name: "acme"}, slog.New(slog.DiscardHandler))
	sub := newSubmissionFor("assistant", "hello")
	if outcome, _ := runTurn(t, a, withReservation(t, a, sub)); outcome.Status.Message.Text() != "You said: hello" {
		t.Errorf("%s %q", outcome.Status.State, outcome.Status.Message.Text())
	}
	in := 1
	for range 30 {
		if _, err := a.RateLimits().CountCall(t.Context(), newCaller(""), sub.Message); err == nil {
			in++
		}
	}
	if in != 20 {
		t.Errorf("%d calls were let in, want 20", in)
	}
}
