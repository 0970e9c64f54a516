package tenancy_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"testing"
	"time"

	"go.uber.org/goleak"

	"stoa/agentsvc"
	"stoa/tenancy"
	"stoa/tenancy/db"
	"stoa/tenancy/grant"
	"stoa/tenancy/keyring"
	"stoa/tenancy/signal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var masterKey = bytes.Repeat([]byte{7}, 32)

func newKeyring(t testing.TB, masters ...[]byte) *keyring.Keyring {
	t.Helper()
	k, err := keyring.New(masters...)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// errCheck is the error with which checkTestConfig refuses a configuration.
var errCheck = errors.New("config does not load")

// checkTestConfig refuses a configuration that is not an object, needs a missing secret, or has a command without the
// grant. A configuration of these tests is {"needs": ["NAME"], "command": true, "key": "secret text"}.
func checkTestConfig(_ context.Context, src []byte, grants grant.List, _ string, secret func(string) (string, bool)) error {
	var c struct {
		Needs   []string
		Command bool
		Port    string // name of a secret whose value must be a number
	}
	if err := json.Unmarshal(src, &c); err != nil {
		return fmt.Errorf("%w: %w", errCheck, err)
	}
	for _, name := range c.Needs {
		if v, ok := secret(name); !ok || v == "bad" {
			return fmt.Errorf("%w: no secret %s", errCheck, name)
		}
	}
	if c.Command && !grants.Has(grant.Command) {
		return fmt.Errorf("%w: no grant", errCheck)
	}
	return nil
}

func decodeTestConfig(src []byte) (doc map[string]any, err error) {
	err = json.Unmarshal(src, &doc)
	return doc, err
}

const maskedValue = "********"

func maskTestConfig(doc map[string]any) map[string]any {
	doc = maps.Clone(doc)
	if _, ok := doc["key"]; ok {
		doc["key"] = maskedValue
	}
	return doc
}

func restoreTestConfig(doc, old map[string]any) map[string]any {
	doc = maps.Clone(doc)
	if doc["key"] == maskedValue {
		doc["key"] = old["key"]
	}
	return doc
}

func newOptions() tenancy.Options {
	return tenancy.Options{
		CheckConfig: checkTestConfig, DecodeConfig: decodeTestConfig, MaskConfig: maskTestConfig, RestoreMasked: restoreTestConfig,
		FlattenConfig: func(doc map[string]any) map[string]any { return doc }, // the tests' documents are flat
		Log:           slog.New(slog.DiscardHandler),
	}
}

// newService returns a service on d with a bus of its own, as another process would have.
func newService(t testing.TB, d *db.DB) *tenancy.Service {
	t.Helper()
	return tenancy.New(d, newKeyring(t, masterKey), signal.New(nil, nil), newOptions())
}

const actor = "operator"

func createApp(t testing.TB, s *tenancy.Service, d tenancy.Draft) tenancy.App {
	t.Helper()
	if d.Config == nil {
		d.Config = []byte(`{}`)
	}
	app, err := s.CreateApp(t.Context(), actor, d, false)
	if err != nil {
		t.Fatal(err)
	}
	return app
}

// wantErr fails the test unless err is want; both may be nil.
func wantErr(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("got error %v, want %v", err, want)
	}
}

// wantInvalid fails the test unless err is an InvalidError of field.
func wantInvalid(t testing.TB, err error, field string) {
	t.Helper()
	var inv *agentsvc.InvalidError
	if !errors.As(err, &inv) || inv.Field != field {
		t.Errorf("got error %v, want one about %s", err, field)
	}
}

func countRows(t testing.TB, h *db.Handle, query string, args ...any) (n int) {
	t.Helper()
	var b db.Batch
	b.Query(func(r db.Row) error { return r.Scan(&n) }, query, args...)
	if err := h.Do(context.Background(), &b); err != nil {
		t.Fatal(err)
	}
	return n
}

func execSQL(t testing.TB, h *db.Handle, query string, args ...any) {
	t.Helper()
	var b db.Batch
	b.Exec(nil, query, args...)
	if err := h.Do(context.Background(), &b); err != nil {
		t.Fatal(err)
	}
}

func newBus() *signal.Bus { return signal.New(nil, nil) }

func changeSchema(t testing.TB, d *db.DB, ddl string) {
	t.Helper()
	err := d.ChangeSchema(context.Background(), "", func(s *sql.DB) error {
		_, err := s.Exec(ddl)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// runUntil runs s until done returns true.
func runUntil(t testing.TB, s *tenancy.Service, done func() bool) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = s.Run(ctx) }()
	for began := time.Now(); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > 10*time.Second {
			t.Error("it has not come about in ten seconds")
			break
		}
	}
	cancel()
	<-ended
}
