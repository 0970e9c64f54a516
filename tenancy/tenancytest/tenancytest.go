// Package tenancytest has what tests of package tenancy and of those above it need: a service with a simple form of
// configurations, and apps in it.
package tenancytest

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"testing"
	"time"

	"stoa/agentsvc"
	"stoa/tenancy"
	"stoa/tenancy/audit"
	"stoa/tenancy/db"
	"stoa/tenancy/grant"
	"stoa/tenancy/keyring"
	"stoa/tenancy/signal"
)

// MasterKey is the master key of [NewService].
var MasterKey = bytes.Repeat([]byte{7}, 32)

// NewKeyring returns a keyring over masters.
func NewKeyring(t testing.TB, masters ...[]byte) *keyring.Keyring {
	t.Helper()
	k, err := keyring.New(masters...)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// ErrCheck is the error with which CheckConfig refuses a configuration.
var ErrCheck = errors.New("config does not load")

// CheckConfig refuses a configuration that is not an object, needs a missing secret, or has a command without the
// grant. A configuration of these tests is {"needs": ["NAME"], "command": true, "key": "secret text"}.
func CheckConfig(_ context.Context, src []byte, grants grant.List, _ string, secret func(string) (string, bool)) ([]tenancy.Warning, error) {
	var c struct {
		Needs   []string
		Command bool
		Port    string // name of a secret whose value must be a number
		Warn    string // message of a warning
	}
	if err := json.Unmarshal(src, &c); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCheck, err)
	}
	for _, name := range c.Needs {
		if v, ok := secret(name); !ok || v == "bad" {
			return nil, fmt.Errorf("%w: no secret %s", ErrCheck, name)
		}
	}
	if c.Command && !grants.Has(grant.Command) {
		return nil, fmt.Errorf("%w: no grant", ErrCheck)
	}
	if c.Warn != "" {
		return []tenancy.Warning{{Path: "warn", Line: 1, Column: 1, Message: c.Warn}}, nil
	}
	return nil, nil
}

func decodeTestConfig(src []byte) (doc map[string]any, err error) {
	err = json.Unmarshal(src, &doc)
	return doc, err
}

// MaskedValue is what MaskConfig writes in place of a secret value.
const MaskedValue = "********"

// keyForm matches the secret text of a configuration.
var keyForm = regexp.MustCompile(`"key": *"([^"]*)"`)

func maskTestConfig(src []byte) (text, asJSON []byte, err error) {
	if !json.Valid(src) {
		return nil, nil, errors.New("not JSON")
	}
	masked := keyForm.ReplaceAll(src, []byte(`"key": "`+MaskedValue+`"`))
	return masked, masked, nil
}

func restoreTestConfig(config, old []byte) []byte {
	if m := keyForm.FindSubmatch(old); m != nil {
		return bytes.ReplaceAll(config, []byte(MaskedValue), m[1])
	}
	return config
}

// NewOptions returns options for configurations in the form of [CheckConfig].
func NewOptions() tenancy.Options {
	return tenancy.Options{
		CheckConfig: CheckConfig, DecodeConfig: decodeTestConfig, MaskConfig: maskTestConfig, RestoreMasked: restoreTestConfig,
		FlattenConfig: func(doc map[string]any) map[string]any { return doc }, // the tests' documents are flat
		Log:           slog.New(slog.DiscardHandler),
	}
}

// NewService returns a service on d with a bus of its own, as another process would have.
func NewService(t testing.TB, d *db.DB) *tenancy.Service {
	t.Helper()
	return tenancy.New(d, NewKeyring(t, MasterKey), signal.New(nil, nil), NewOptions())
}

// Actor is who makes the changes of [CreateApp].
var Actor = audit.Actor{Name: "operator"}

// CreateApp creates an app, with an empty configuration unless d has one.
func CreateApp(t testing.TB, s *tenancy.Service, d tenancy.Draft) tenancy.App {
	t.Helper()
	if d.Config == nil {
		d.Config = []byte(`{}`)
	}
	app, err := s.CreateApp(t.Context(), Actor, d, false)
	if err != nil {
		t.Fatal(err)
	}
	return app
}

// WantErr fails the test unless err is want; both may be nil.
func WantErr(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("got error %v, want %v", err, want)
	}
}

// WantInvalid fails the test unless err is an InvalidError of field.
func WantInvalid(t testing.TB, err error, field string) {
	t.Helper()
	var inv *agentsvc.Error
	if !errors.As(err, &inv) || inv.Field != field {
		t.Errorf("got error %v, want one about %s", err, field)
	}
}

// CountRows returns the number that a query selects.
func CountRows(t testing.TB, h *db.Handle, query string, args ...any) (n int) {
	t.Helper()
	var b db.Batch
	b.Query(func(r db.Row) error { return r.Scan(&n) }, query, args...)
	if err := h.Do(context.Background(), &b); err != nil {
		t.Fatal(err)
	}
	return n
}

// ExecSQL executes a statement.
func ExecSQL(t testing.TB, h *db.Handle, query string, args ...any) {
	t.Helper()
	var b db.Batch
	b.Exec(nil, query, args...)
	if err := h.Do(context.Background(), &b); err != nil {
		t.Fatal(err)
	}
}

// NewBus returns a bus within this process.
func NewBus() *signal.Bus { return signal.New(nil, nil) }

// ChangeSchema executes DDL.
func ChangeSchema(t testing.TB, d *db.DB, ddl string) {
	t.Helper()
	err := d.ChangeSchema(context.Background(), "", func(s *sql.DB) error {
		_, err := s.Exec(ddl)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// RunUntil runs s until done returns true.
func RunUntil(t testing.TB, s *tenancy.Service, done func() bool) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = s.Run(ctx) }()
	for began := time.Now(); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > time.Minute {
			t.Error("it has not come about in a minute")
			break
		}
	}
	cancel()
	<-ended
}
