package server

import (
	"bytes"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"stoa/authz"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
	"stoa/tenancy/keyring"
	"stoa/tenancy/tenancytest"
)

// TestChangeOfMasterKey changes the master key of two processes in the documented order, in which both can decrypt every
// row at any time, and in the wrong one, in which the process without the new key is not ready and says why.
func TestChangeOfMasterKey(t *testing.T) {
	t.Parallel()
	older, newer := bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{2}, 32)
	for name, tt := range map[string]struct {
		steps [][2][][]byte // the keys of both processes, step by step
		ready bool
	}{
		"documented": {[][2][][]byte{{{older}, {older}}, {{older, newer}, {older}}, {{older, newer}, {older, newer}}, {{newer, older}, {older, newer}}, {{newer, older}, {newer, older}}, {{newer}, {newer, older}}}, true},
		"wrong":      {[][2][][]byte{{{older}, {older}}, {{newer, older}, {older}}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
				var watches [2]*keyWatch
				for _, step := range tt.steps {
					for i, masters := range step {
						keys := tenancytest.NewKeyring(t, masters...)
						watches[i] = &keyWatch{db: d, keys: keys, source: MasterKeyName, log: slog.New(slog.DiscardHandler)}
						if err := watches[i].check(t.Context()); err != nil && tt.ready {
							t.Fatal(err)
						}
						// It creates the signing key, or encrypts it again under the first key.
						if _, err := authz.OpenBuiltInIssuer(t.Context(), d, keys, authz.BuiltInIssuerOptions{}); err != nil && tt.ready {
							t.Fatal(err)
						}
					}
				}
				err := watches[1].check(t.Context())
				if tt.ready {
					if err != nil || watches[1].checkReady() != nil {
						t.Errorf("not ready: %v", err)
					}
					return
				}
				if former, missing := watches[1].countKeys(); former != 0 || missing != 1 {
					t.Errorf("counted %d former keys and %d missing ones, want 0 and 1", former, missing)
				}
				if former, missing := watches[0].countKeys(); former != 1 || missing != 0 {
					t.Errorf("counted %d former keys and %d missing ones of the other process, want 1 and 0", former, missing)
				}
				id := tenancytest.NewKeyring(t, newer).CurrentKeyID()
				for _, err := range []error{err, watches[1].checkReady()} {
					if !errors.Is(err, keyring.ErrKeyMissing) || !strings.Contains(err.Error(), "under the master key "+id) || !strings.Contains(err.Error(), "add it to STOA_MASTER_KEY") {
						t.Errorf("got %v, want an error with the missing key %s", err, id)
					}
				}
				if err := watches[0].check(t.Context()); err != nil || watches[0].checkReady() != nil {
					t.Errorf("the process with both keys is not ready: %v", err)
				}
			})
		})
	}
}

// TestServerWithoutItsMasterKey starts a server on a restored SQLite database without its stoa.secrets, and with that of
// another database: it does not start, says which file is needed, and writes none.
func TestServerWithoutItsMasterKey(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	database, secrets := "sqlite://"+filepath.Join(folder, "stoa.db"), filepath.Join(folder, "stoa.secrets")
	start := func() error {
		port, host := 0, "127.0.0.1"
		app, err := LoadDefaultApp("")
		if err != nil {
			t.Fatal(err)
		}
		s, err := ResolveSettings(Flags{Database: &database, Port: &port, Host: &host}, nil)
		if err != nil {
			t.Fatal(err)
		}
		h, err := New(t.Context(), Options{Version: "v0", Settings: s, DefaultApp: app, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			return err
		}
		return h.Close()
	}
	if err := start(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(secrets); err != nil {
		t.Fatal(err)
	}
	if err := start(); err == nil || !strings.Contains(err.Error(), "there is no stoa.secrets") || !strings.Contains(err.Error(), "restore "+secrets) {
		t.Errorf("without stoa.secrets: %v", err)
	}
	if _, err := os.Stat(secrets); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file was written: %v", err)
	}
	d, err := db.Open(t.Context(), database, db.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := OpenKeyring(t.Context(), d, database); err == nil {
		t.Error("stoa secrets status generates a key")
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(secrets, []byte(AdminSecretName+"="+generateSecret()+"\n"+MasterKeyName+"="+generateSecret()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := start(); !errors.Is(err, keyring.ErrKeyMissing) || !strings.Contains(err.Error(), "STOA_MASTER_KEY in "+secrets) {
		t.Errorf("with the secrets of another database: %v", err)
	}
}
