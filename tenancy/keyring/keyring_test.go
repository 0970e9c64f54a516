package keyring_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"stoa/tenancy/keyring"
)

var masterKey = bytes.Repeat([]byte{7}, 32)

func newKeyring(t testing.TB, masters ...[]byte) *keyring.Keyring {
	t.Helper()
	k, err := keyring.New(masters...)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestNew(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		masters [][]byte
		ok      bool
	}{
		{"none", nil, false},
		{"short", [][]byte{make([]byte, 31)}, false},
		{"long", [][]byte{make([]byte, 33)}, false},
		{"one", [][]byte{masterKey}, true},
		{"second short", [][]byte{masterKey, {1}}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := keyring.New(tt.masters...); (err == nil) != tt.ok {
				t.Errorf("got error %v, want ok %v", err, tt.ok)
			}
		})
	}
}

func TestSeal(t *testing.T) {
	t.Parallel()
	k := newKeyring(t, masterKey)
	plain := []byte("attack at dawn")
	sealed, err := k.SealValue("issuer", "key/1", plain)
	if err != nil {
		t.Fatal(err)
	}
	again, err := k.SealValue("issuer", "key/1", plain)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(sealed, plain) || bytes.Equal(sealed, again) {
		t.Error("the sealed text shows its content, or is the same twice")
	}
	got, err := k.OpenValue("issuer", "key/1", sealed)
	if err != nil || !bytes.Equal(got, plain) {
		t.Fatalf("opened %q, %v, want %q", got, err, plain)
	}
	if _, err := k.OpenValue("other", "key/1", sealed); err == nil {
		t.Error("opened in another scope")
	}
	if _, err := k.OpenValue("issuer", "key/2", sealed); err == nil {
		t.Error("opened as another field")
	}
	if _, err := newKeyring(t, bytes.Repeat([]byte{8}, 32)).OpenValue("issuer", "key/1", sealed); err == nil {
		t.Error("opened with another master key")
	}
	for i := range sealed {
		bad := bytes.Clone(sealed)
		bad[i] ^= 1
		if _, err := k.OpenValue("issuer", "key/1", bad); err == nil {
			t.Errorf("opened with byte %d changed", i)
		}
		if _, err := k.OpenValue("issuer", "key/1", sealed[:i]); err == nil {
			t.Errorf("opened when cut to %d bytes", i)
		}
	}
}

func TestRotateMaster(t *testing.T) {
	t.Parallel()
	next := bytes.Repeat([]byte{9}, 32)
	old, both, only := newKeyring(t, masterKey), newKeyring(t, next, masterKey), newKeyring(t, next)
	wrapped := old.NewDataKey("app")
	fieldCipher, err := old.NewFieldCipher("app", wrapped)
	if err != nil {
		t.Fatal(err)
	}
	sealed := fieldCipher.Seal("f", []byte("x"))
	if _, err := only.NewFieldCipher("app", wrapped); !errors.Is(err, keyring.ErrKeyMissing) {
		t.Errorf("unwrapped without the old master key: %v", err)
	}
	rewrapped, err := both.RewrapDataKey("app", wrapped)
	if err != nil {
		t.Fatal(err)
	}
	if fieldCipher, err = only.NewFieldCipher("app", rewrapped); err != nil {
		t.Fatal(err)
	}
	if got, err := fieldCipher.Open("f", sealed); err != nil || string(got) != "x" {
		t.Errorf("opened %q, %v after the rotation", got, err)
	}
	if _, err := both.RewrapDataKey("other", wrapped); err == nil {
		t.Error("rewrapped in another scope")
	}

	if sealed, err = old.SealValue("app", "f", []byte("y")); err != nil {
		t.Fatal(err)
	}
	renewed, err := both.RewrapValue("app", sealed)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := only.OpenValue("app", "f", renewed); err != nil || string(got) != "y" {
		t.Errorf("opened %q, %v after it was renewed", got, err)
	}
	for name, f := range map[string]func() ([]byte, error){
		"in another scope":     func() ([]byte, error) { return both.RewrapValue("other", sealed) },
		"without its key":      func() ([]byte, error) { return only.RewrapValue("app", sealed) },
		"what was never whole": func() ([]byte, error) { return both.RewrapValue("app", sealed[:10]) },
	} {
		if _, err := f(); err == nil {
			t.Errorf("renewed %s", name)
		}
	}
	if got := both.FormerKeyIDs(); len(got) != 1 || got[0] != old.CurrentKeyID() || only.FormerKeyIDs() != nil {
		t.Errorf("former keys %v and %v", got, only.FormerKeyIDs())
	}
}

func TestCursor(t *testing.T) {
	t.Parallel()
	next := bytes.Repeat([]byte{9}, 32)
	k := newKeyring(t, masterKey)
	token := k.EncodeCursor("apps/", "m")
	for name, tt := range map[string]struct {
		k           *keyring.Keyring
		list, token string
		want        string
		ok          bool
	}{
		"own":          {k, "apps/", token, "m", true},
		"none":         {k, "apps/", "", "", true},
		"after change": {newKeyring(t, next, masterKey), "apps/", token, "m", true},
		"other list":   {k, "apps/active", token, "", false},
		"other master": {newKeyring(t, next), "apps/", token, "", false},
		"made up":      {k, "apps/", "bQ", "", false},
		"no base64":    {k, "apps/", "%%%", "", false},
		"huge":         {k, "apps/", strings.Repeat("A", 5000), "", false},
		"tail cut":     {k, "apps/", token[:len(token)-2], "", false},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := tt.k.DecodeCursor(tt.list, tt.token)
			if got != tt.want || (err == nil) != tt.ok {
				t.Errorf("got %q, %v, want %q, ok %v", got, err, tt.want, tt.ok)
			}
			if !tt.ok && !errors.Is(err, keyring.ErrInvalidCursor) {
				t.Errorf("got error %v, want %v", err, keyring.ErrInvalidCursor)
			}
		})
	}
}

// TestDerive checks that derived keys differ by master key and purpose, and are equal if both are.
func TestDerive(t *testing.T) {
	t.Parallel()
	one, two := bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{2}, 32)
	derive := func(purpose string, masters ...[]byte) [][]byte {
		t.Helper()
		keys, err := newKeyring(t, masters...).DeriveKeys(purpose)
		if err != nil {
			t.Fatal(err)
		}
		return keys
	}
	both, alone := derive("a", two, one), derive("a", one)
	if len(both) != 2 || len(both[0]) != 32 || !bytes.Equal(both[1], alone[0]) || bytes.Equal(both[0], both[1]) {
		t.Errorf("%x and %x", both, alone)
	}
	if bytes.Equal(alone[0], derive("b", one)[0]) || bytes.Equal(alone[0], one) {
		t.Error("a key serves two purposes")
	}
}

// TestHasher checks that apps have different hashes, which stay the same under another master key.
func TestHasher(t *testing.T) {
	t.Parallel()
	old, err := keyring.New(make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	both, err := keyring.New([]byte(strings.Repeat("n", 32)), make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	sum := func(k *keyring.Keyring, scope string, wrapped []byte) string {
		fieldCipher, err := k.NewFieldCipher(scope, wrapped)
		if err != nil {
			t.Fatal(err)
		}
		return fieldCipher.Hasher().Sum([]byte("yes"))
	}
	a, b := old.NewDataKey("a"), old.NewDataKey("b")
	again, err := both.RewrapDataKey("a", a)
	if err != nil {
		t.Fatal(err)
	}
	if h := sum(old, "a", a); h == sum(old, "b", b) || h != sum(both, "a", again) || !strings.HasPrefix(h, "hmac-sha256:") {
		t.Errorf("hash %q, of another app %q, under another master key %q", h, sum(old, "b", b), sum(both, "a", again))
	}
	if h := (keyring.Hasher{}).Sum([]byte("yes")); h != "" {
		t.Errorf("without a key the hash is %q", h)
	}
}
