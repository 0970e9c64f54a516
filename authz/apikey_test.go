package authz

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"stoa/agentsvc"
	"stoa/tenancy"
	"stoa/tenancy/apikey"
	"stoa/tenancy/audit"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
	"stoa/tenancy/signal"
)

// newKeyService returns the API keys of a service with a default app.
func newKeyService(t *testing.T, d *db.DB) (*APIKeys, *tenancy.Service) {
	t.Helper()
	apps := tenancy.New(d, newKeyring(t, "m"), signal.New(nil, nil), tenancy.Options{})
	apps.DefaultApp.Set("", []byte("{}"))
	return NewAPIKeys(apikey.NewStore(d, apps), openIssuer(t, d)), apps
}

func createKey(t *testing.T, k *APIKeys, spec APIKeySpec) (text, id string) {
	t.Helper()
	if spec.Name == "" {
		spec.Name = "test"
	}
	text, stored, _, err := k.CreateKey(t.Context(), audit.Actor{Name: "op"}, &tenancy.App{Name: "default"}, spec)
	if err != nil {
		t.Fatal(err)
	}
	return text, stored.ID
}

// TestKeyCacheExpiry deletes a key without a signal: it is accepted for a minute at most, and not at all once its app
// is known to have changed.
func TestKeyCacheExpiry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := dbtest.NewSQLite(t)
		k, _ := newKeyService(t, d)
		forget := func(id string) {
			var b db.Batch
			b.Exec(nil, `DELETE FROM api_key WHERE id = $1`, id)
			if err := d.Platform().Do(t.Context(), &b); err != nil {
				t.Fatal(err)
			}
		}
		good := func(text string, generation int64) {
			t.Helper()
			if _, err := k.VerifyKey(t.Context(), text, generation); err != nil {
				t.Errorf("a good key: %v", RefusalReason(err))
			}
		}
		bad := func(text string, generation int64) {
			t.Helper()
			if _, err := k.VerifyKey(t.Context(), text, generation); !errors.Is(err, agentsvc.CodeUnauthenticated) {
				t.Errorf("a bad key: %v", err)
			}
		}
		first, id := createKey(t, k, APIKeySpec{})
		good(first, 0)
		forget(id)
		good(first, 1)
		time.Sleep(59 * time.Second)
		good(first, 1)
		time.Sleep(2 * time.Second)
		bad(first, 1)

		second, id := createKey(t, k, APIKeySpec{})
		good(second, 0)
		forget(id)
		bad(second, 1<<60)
		bad(second, 0)

		brief, _ := createKey(t, k, APIKeySpec{Expires: time.Now().Add(10 * time.Second)})
		good(brief, 1)
		time.Sleep(9 * time.Second)
		good(brief, 1)
		time.Sleep(time.Second)
		bad(brief, 1)

		third, id := createKey(t, k, APIKeySpec{})
		next, _, _, err := k.RotateKey(t.Context(), audit.Actor{Name: "op"}, "default", id, 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		good(third, 0)
		good(next, 0)
		time.Sleep(10 * time.Second)
		bad(third, 0)
		good(next, 0)
		for _, text := range []string{"", "stoa_", "stoa_default_" + strings.Repeat("a", 37), next + "a", " " + next, strings.Replace(next, "default", "Default", 1)} {
			bad(text, 0)
		}
	})
}

// TestKeyUse uses a key every second for ten minutes: its last use is written once a minute.
func TestKeyUse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k, _ := newKeyService(t, dbtest.NewSQLite(t))
		text, _ := createKey(t, k, APIKeySpec{})
		idle, _ := createKey(t, k, APIKeySpec{})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- k.Run(ctx) }()
		if _, err := k.VerifyKey(ctx, idle, 0); err != nil {
			t.Fatal(err)
		}
		writes := map[time.Time]bool{}
		last := func() time.Time {
			keys, err := k.Store.List(t.Context(), "default")
			if err != nil {
				t.Fatal(err)
			}
			if !keys[0].LastUsedAt.IsZero() && !keys[1].LastUsedAt.IsZero() {
				t.Fatal("a key that was refused counts as used")
			}
			if keys[0].LastUsedAt.IsZero() {
				return keys[1].LastUsedAt
			}
			return keys[0].LastUsedAt
		}
		begin := time.Now()
		for range 600 {
			if _, err := k.VerifyKey(ctx, text, 1); err != nil {
				t.Fatal(err)
			}
			if at := last(); !at.IsZero() {
				writes[at] = true
			}
			time.Sleep(time.Second)
		}
		if n := len(writes); n < 9 || n > 10 {
			t.Errorf("%d writes in %v", n, time.Since(begin))
		}
		time.Sleep(time.Minute)
		if _, err := k.VerifyKey(ctx, text, 1); err != nil {
			t.Fatal(err)
		}
		now := time.Now()
		stop()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if at := last(); now.Sub(at) > time.Second {
			t.Errorf("the end wrote down %v, the last use was at %v", at, now)
		}
	})
}

// TestAdminSecretIsNoKey refuses an admin secret with the form of an API key.
func TestAdminSecretIsNoKey(t *testing.T) {
	t.Parallel()
	if _, err := NewAdminSecret(apikey.NewText("default", apikey.NewID()), nil); err == nil || !strings.Contains(err.Error(), "API key") {
		t.Errorf("%v, want a hint", err)
	}
}

// TestKeyDeletedWhileRead deletes a key after a read has loaded it and before that read returns. A caller that knows
// that the app has changed gets the former state neither from that read nor from the cache.
func TestKeyDeletedWhileRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k, _ := newKeyService(t, dbtest.NewSQLite(t))
		text, id := createKey(t, k, APIKeySpec{})
		read, proceed := make(chan int64), make(chan struct{})
		lookup := k.loadFromDatabase
		k.loadFromDatabase = func(ctx context.Context, id string) (apikey.Key, apikey.Owner, error) {
			stored, of, err := lookup(ctx, id)
			if err == nil {
				read <- of.Generation
				<-proceed
			}
			return stored, of, err
		}
		early := make(chan error, 1)
		go func() {
			_, err := k.VerifyKey(t.Context(), text, 0)
			early <- err
		}()
		generation := <-read
		if err := k.Store.Delete(t.Context(), audit.Actor{Name: "op"}, "default", id); err != nil {
			t.Fatal(err)
		}
		late := make(chan error, 1)
		go func() {
			_, err := k.VerifyKey(t.Context(), text, generation+1)
			late <- err
		}()
		synctest.Wait()
		close(proceed)
		if err := <-early; err != nil {
			t.Errorf("before the deletion: %v", RefusalReason(err))
		}
		if err := <-late; !errors.Is(err, agentsvc.CodeUnauthenticated) {
			t.Errorf("after the deletion: %v", err)
		}
		if _, err := k.VerifyKey(t.Context(), text, generation+1); !errors.Is(err, agentsvc.CodeUnauthenticated) {
			t.Errorf("later: %v", err)
		}
	})
}
