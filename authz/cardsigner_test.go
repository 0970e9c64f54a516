package authz_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"stoa/authz"
	"stoa/tenancy/keyring"
)

// TestCardSigner checks that every process can verify the signatures of the others, also during a rotation of master
// keys, and that other payloads and keys are refused.
func TestCardSigner(t *testing.T) {
	t.Parallel()
	const url = "https://stoa.test/keys"
	signer := func(masters ...byte) *authz.CardSigner {
		t.Helper()
		var raw [][]byte
		for _, b := range masters {
			raw = append(raw, bytes.Repeat([]byte{b}, 32))
		}
		k, err := keyring.New(raw...)
		if err != nil {
			t.Fatal(err)
		}
		s, err := authz.NewCardSigner(k, url)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	verify := func(by *authz.CardSigner, payload, protected, signature string) bool {
		t.Helper()
		var set jose.JSONWebKeySet
		if err := json.Unmarshal(by.JWKS(), &set); err != nil {
			t.Fatal(err)
		}
		for _, k := range set.Keys {
			if !k.IsPublic() {
				t.Fatalf("the key %s is not public", k.KeyID)
			}
		}
		sig, err := jose.ParseSignedCompact(protected+"."+base64.RawURLEncoding.EncodeToString([]byte(payload))+"."+signature, []jose.SignatureAlgorithm{jose.EdDSA})
		if err != nil {
			t.Fatal(err)
		}
		h := sig.Signatures[0].Protected
		if h.ExtraHeaders["jku"] != url || h.ExtraHeaders[jose.HeaderType] != "JOSE" {
			t.Errorf("the header is %+v", h)
		}
		for _, k := range set.Key(h.KeyID) {
			if _, err := sig.Verify(k); err == nil {
				return true
			}
		}
		return false
	}
	protected, signature, err := signer(1).Sign([]byte("the card"))
	if err != nil {
		t.Fatal(err)
	}
	if _, again, _ := signer(1).Sign([]byte("the card")); again != signature {
		t.Error("the same card has another signature")
	}
	for name, c := range map[string]struct {
		by      *authz.CardSigner
		payload string
		want    bool
	}{
		"another process":      {signer(1), "the card", true},
		"a key on its way out": {signer(2, 1), "the card", true},
		"a key that is gone":   {signer(2), "the card", false},
		"another card":         {signer(1), "The card", false},
	} {
		if got := verify(c.by, c.payload, protected, signature); got != c.want {
			t.Errorf("%s: verifies %v", name, got)
		}
	}
}
