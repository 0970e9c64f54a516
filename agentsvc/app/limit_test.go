package app_test

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
	"stoa/agentsvc/app"
	"stoa/agentsvc/config"
	"stoa/agentsvc/queue"
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

func caller(context agentsvc.ContextID) ratelimit.Caller {
	return ratelimit.Caller{Agent: "helper", Owner: ana, Session: context}
}

// used returns the calls and tokens that are counted for ana, and changes neither but for one call.
func used(t *testing.T, a *app.App) (calls, tokens int64) {
	t.Helper()
	g, err := a.Limits().Admit(t.Context(), caller(""), agentsvc.Message{})
	if err != nil {
		t.Fatal(err)
	}
	a.Limits().Release(caller(""), g.Reserve)
	for _, s := range g.States {
		if s.Unit == ratelimit.Tokens {
			tokens = s.Used - g.Reserve.Tokens
		} else {
			calls = s.Used
		}
	}
	return calls, tokens
}

// admitted is sub as the front door admits it.
func admitted(t *testing.T, a *app.App, sub task.Submission) task.Submission {
	t.Helper()
	g, err := a.Limits().Admit(t.Context(), caller(sub.Message.Context), sub.Message)
	if err != nil {
		t.Fatal(err)
	}
	sub.Hold = &task.Hold{Note: g.Reserve.Note()}
	return sub
}

// counted waits until so many tokens are counted: that happens right after the turn's end is told.
func counted(t *testing.T, a *app.App, want int64) {
	t.Helper()
	var got int64
	for range 200 {
		if _, got = used(t, a); got == want {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if got != want {
		t.Errorf("%d tokens are counted, want %d", got, want)
	}
}

// TestLimitsSettle counts exactly what turns have used, whichever way they go, in the platform's database and in one that
// the app brings.
func TestLimitsSettle(t *testing.T) {
	t.Parallel()
	for name, own := range map[string]func(t *testing.T) (name, yaml string){
		"platform": func(t *testing.T) (string, string) { yaml, _ := ownSQLite(t); return `""`, yaml },
		"sqlite":   func(t *testing.T) (string, string) { yaml, _ := ownSQLite(t); return "own", yaml },
		"postgres": func(t *testing.T) (string, string) { yaml, _ := ownPostgres(t); return "own", yaml },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			which, yaml := own(t)
			platform := dbtest.SQLite(t)
			a := houseOf(t, platform, parsed(t, fmt.Sprintf(limitSource, which, yaml), config.Options{}), inside, slog.New(slog.DiscardHandler))
			say := func(text string) task.Submission {
				sub := say(text)
				sub.Message.Context = "c"
				return admitted(t, a, sub)
			}
			call(t, a, say("hello"))
			counted(t, a, 42)
			call(t, a, say("sum")) // two model calls
			counted(t, a, 42+111+42)
			call(t, a, say("break"))
			counted(t, a, 195)
			asked, _ := call(t, a, say("ask"))
			counted(t, a, 205)
			answer := say("Rome")
			answer.Message.Task = asked.ID
			call(t, a, answer)
			counted(t, a, 247)
			if _, err := a.Tasks().Submit(t.Context(), say(strings.Repeat("long ", 200))); err != nil { // through the queue
				t.Fatal(err)
			}
			counted(t, a, 289)
			sub := say("twice")
			sub.Message.ID = "m"
			call(t, a, sub)
			counted(t, a, 331)
			again := say("twice")
			again.Message.ID = "m"
			call(t, a, again)
			if again.Hold.Kept {
				t.Error("a repetition holds what is reserved for it")
			}
			a.Limits().Release(caller("c"), ratelimit.ReserveOf(again.Hold.Note))
			counted(t, a, 331)
			if n := countRows(t, platform); (n > 0) != (name == "platform") {
				t.Errorf("the platform's database has %d counters", n)
			}
		})
	}
}

func countRows(t *testing.T, d *db.DB) int { return number(t, d, `SELECT COUNT(*) FROM rate_count`) }

func number(t *testing.T, d *db.DB, query string) (n int) {
	t.Helper()
	var b db.Batch
	b.Query(func(r db.Row) error { return r.Scan(&n) }, query)
	if err := d.Platform().Do(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestLimitsHoldWhatTurnsUse has turns hold what the agent's turns before have used.
func TestLimitsHoldWhatTurnsUse(t *testing.T) {
	t.Parallel()
	yaml, _ := ownSQLite(t)
	a := houseOf(t, dbtest.SQLite(t), parsed(t, fmt.Sprintf(limitSource, `""`, yaml), config.Options{}), inside, slog.New(slog.DiscardHandler))
	held := func(text string) int64 {
		sub := admitted(t, a, say(text))
		r := ratelimit.ReserveOf(sub.Hold.Note)
		a.Limits().Release(caller(""), r)
		return r.Tokens
	}
	if n := held("four"); n != 2 {
		t.Errorf("the first message holds %d tokens", n)
	}
	call(t, a, admitted(t, a, say("sum")))
	counted(t, a, 153)
	if n := held("four"); n != 153 {
		t.Errorf("after a turn of 153 tokens a message holds %d", n)
	}
	if n := held(strings.Repeat("four", 1000)); n != 1001 {
		t.Errorf("a message of 1,000 tokens holds %d", n)
	}
	call(t, a, admitted(t, a, say("hello")))
	counted(t, a, 195)
	if n := held("four"); n != 126 {
		t.Errorf("after a turn of 42 more a message holds %d", n)
	}
}

// TestLimitsDatabaseAway counts in the platform's database while the one that the app brings refuses or says nothing.
func TestLimitsDatabaseAway(t *testing.T) {
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
			platform := dbtest.SQLite(t)
			a := houseOf(t, platform, parsed(t, fmt.Sprintf(limitSource, "own", nowhere), config.Options{}), inside, slog.New(slog.DiscardHandler))
			in, began := 0, time.Now()
			for range 60 {
				_, err := a.Limits().Admit(t.Context(), caller(""), agentsvc.Message{})
				if err == nil {
					in++
				} else if !errors.Is(err, ratelimit.ErrExhausted) {
					t.Fatal(err)
				}
			}
			if n := countRows(t, platform); in != 50 || n != 2 {
				t.Errorf("%d calls were let in, and the platform has %d counters", in, n)
			}
			if took := time.Since(began); took > 4500*time.Millisecond {
				t.Errorf("it took %v", took)
			}
		})
	}
}

// TestLimitsOfTries counts what a turn has used once, however many attempts it takes, and gives back once what it held.
func TestLimitsOfTries(t *testing.T) {
	t.Parallel()
	yaml, _ := ownSQLite(t)
	source := strings.Replace(fmt.Sprintf(limitSource, `""`, yaml), "      - then:", "      - when: {tool_result: calc}\n        then: [{fail: {status: 503, message: later}}]\n      - then:", 1)
	platform := dbtest.SQLite(t)
	a := houseOf(t, platform, parsed(t, source, config.Options{}), inside, slog.New(slog.DiscardHandler), func(h *app.House) {
		h.Retry = queue.Retry{Max: 3, Initial: 5 * time.Millisecond, Limit: 5 * time.Millisecond}
	})
	for i := range int64(3) {
		told, _ := call(t, a, admitted(t, a, say("sum")))
		if told.Status.State != agentsvc.Failed {
			t.Fatalf("%s %q", told.Status.State, told.Status.Message.Text())
		}
		counted(t, a, 111*(i+1))
	}
	if n := number(t, platform, `SELECT MIN(attempts) FROM run`); n != 4 {
		t.Errorf("a turn was tried %d times, want 4", n)
	}
}

// TestOperatorsLimitsStayWhereTheyAre counts the operator's limits in one place, wherever the configuration has its own
// counted: changing that gives nobody more.
func TestOperatorsLimitsStayWhereTheyAre(t *testing.T) {
	t.Parallel()
	platform := dbtest.SQLite(t)
	counts := ratelimit.NewCounts(platform, nil, slog.New(slog.DiscardHandler))
	in := 0
	for _, limiting := range []string{"{}", "{enabled: true, limits: [{type: count, window: day, limit: 2}]}", "{enabled: true, backend: sql, limits: [{type: count, window: day, limit: 2}]}", "{}"} {
		cfg := parsed(t, "llms: {demo: {provider: scripted}}\nagents: {helper: {llm: demo}}\nrate_limiting: "+limiting, config.Options{})
		tenant := app.Tenant{ID: "acme", Name: "acme", Limits: tenancy.Limits{Rates: []tenancy.Rate{{Per: "app", Type: "count", Window: "month", Limit: 5}}}}
		a := houseOf(t, platform, cfg, tenant, slog.New(slog.DiscardHandler), func(h *app.House) { h.Counts = counts })
		for range 3 {
			if _, err := a.Limits().Admit(t.Context(), caller(""), agentsvc.Message{}); err == nil {
				in++
			}
		}
	}
	if in != 5 {
		t.Errorf("%d were let in, want 5", in)
	}
}

// TestWordsOfLimits holds that every word that a configuration or an operator may use of a limit is one that acts.
func TestWordsOfLimits(t *testing.T) {
	t.Parallel()
	d := dbtest.SQLite(t)
	for _, per := range []string{"session", "user", "app", "agent", "key"} {
		for _, kind := range []string{"count", "token"} {
			for _, window := range []string{"minute", "hour", "day", "week", "month"} {
				limiting, rates := "{}", []tenancy.Rate{{Per: per, Type: kind, Window: window, Limit: 7}}
				if per == "session" || per == "user" {
					limiting, rates = fmt.Sprintf("{enabled: true, scope: %s, limits: [{type: %s, window: %s, limit: 7}]}", per, kind, window), nil
				}
				cfg := parsed(t, "llms: {demo: {provider: scripted}}\nagents: {helper: {llm: demo}}\nrate_limiting: "+limiting, config.Options{})
				a, err := app.Build(cfg, app.Tenant{ID: "acme", Name: "acme", Limits: tenancy.Limits{Rates: rates}}, app.House{DB: d, Log: slog.New(slog.DiscardHandler)})
				if err != nil {
					t.Fatal(err)
				}
				who := caller("")
				who.Owner.Subject = "key:" + agentsvc.NewID()
				g, err := a.Limits().Admit(t.Context(), who, agentsvc.Message{})
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
	src = []byte(strings.Replace(string(src), "window: minute", "window: day", 1)) // a minute may end meanwhile
	a := houseOf(t, dbtest.SQLite(t), parsed(t, string(src), config.Options{}), app.Tenant{ID: "acme", Name: "acme"}, slog.New(slog.DiscardHandler))
	sub := ask("assistant", "hello")
	if told, _ := call(t, a, admitted(t, a, sub)); told.Status.Message.Text() != "You said: hello" {
		t.Errorf("%s %q", told.Status.State, told.Status.Message.Text())
	}
	in := 1
	for range 30 {
		if _, err := a.Limits().Admit(t.Context(), caller(""), sub.Message); err == nil {
			in++
		}
	}
	if in != 20 {
		t.Errorf("%d calls were let in, want 20", in)
	}
}
