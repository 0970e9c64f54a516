package main

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"stoa/agentsvc/surface/a2agrpc"
	"stoa/tenancy/db/dbtest"
)

// TestSignedCards checks that with --sign-cards every card that official clients read has a signature whose keys are
// at the URL it names, and its entity tag from before; without the flag no card is signed.
func TestSignedCards(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "stoa.yaml")
	err := os.WriteFile(file, []byte(`
llms: {demo: {provider: scripted}}
server: {provider: {org: "Stoa <&> Sons", url: "https://stoa.test/"}}
agents:
  assistant:
    llm: demo
    description: "Answers \"questions\"\u2028 \u0001 Grüße, 世界 🙂 </b> \\ \t."
    skills: [{id: ask, name: Ask, description: "", tags: []}]
  guarded:
    llm: demo
    security: {schemes: {key: {type: apiKey, in: header, name: X-Key}}, require: [key]}
`), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	database := dbtest.NewSQLiteURL(t)
	closed, err := prepareServer(t, database, slog.New(slog.DiscardHandler), file)
	if err != nil {
		t.Fatal(err)
	}
	closed.Settings.Cards.Sign = true
	h := startTestServer(t, closed)
	paths := []string{"/.well-known/agent-card.json", "/agents/assistant", "/agents/guarded/.well-known/agent-card.json", "/a2a/assistant/.well-known/agent-card.json", "/a2a/guarded/.well-known/agent-card.json"}
	var addresses []string
	for _, path := range paths {
		addresses = append(addresses, h.url+path)
		resp, err := http.Get(h.url + path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		again := h.newRequest(t, "GET", path, "", nil)
		again.Header.Set("If-None-Match", resp.Header.Get("ETag"))
		if status, body := h.sendRequest(t, again); status != http.StatusNotModified {
			t.Errorf("%s with its entity tag: %d %s", path, status, body)
		}
		_, card := h.doRequest(t, "GET", path, "", nil)
		h.verifyCard(t, path, card)
	}
	conn := h.dialGRPC(t)
	card, err := callGRPC(t, conn, "", service10+"GetExtendedAgentCard", `{}`, "assistant")
	if err != nil {
		t.Fatal(err)
	}
	h.verifyCard(t, "gRPC", card)
	var extended struct{ Result json.RawMessage }
	h.requireStatus(t, 200, &extended, "POST", "/a2a/assistant", "", newRPCCall("GetExtendedAgentCard", map[string]any{}))
	h.verifyCard(t, "the extended card", string(extended.Result))
	if folder := os.Getenv("STOA_TEST_A2A_SDK"); folder == "" {
		t.Log("ATTENTION: without STOA_TEST_A2A_SDK (the folder that .ci/a2a-sdk prints) the official client for JavaScript verified no card")
	} else {
		cmd := exec.CommandContext(t.Context(), "node", append([]string{"testdata/verify.mjs", folder}, addresses...)...)
		cmd.Stderr = t.Output()
		out, err := cmd.Output()
		if want := strings.Repeat("true false\n", len(paths)); err != nil || string(out) != want {
			t.Errorf("the official client says %q, %v; want %q", out, err, want)
		}
	}
	plain := openServerWith(t, dbtest.NewSQLiteURL(t), slog.New(slog.DiscardHandler), file)
	if _, card := plain.doRequest(t, "GET", paths[0], "", nil); strings.Contains(card, "signatures") {
		t.Errorf("no client asked for signatures: %s", card)
	}
	if _, keys := plain.doRequest(t, "GET", "/.well-known/card-keys.json", "", nil); keys != `{"keys":[]}` {
		t.Errorf("and there are keys: %s", keys)
	}
}

// verifyCard verifies the signature of a card with the key that it names.
func (ts *testServer) verifyCard(t *testing.T, what, card string) {
	t.Helper()
	var signed struct {
		Signatures []struct{ Protected, Signature string }
	}
	var head struct{ Alg, Kid, Jku, Typ string }
	if err := json.Unmarshal([]byte(card), &signed); err != nil || len(signed.Signatures) != 1 {
		t.Fatalf("%s: %v in %s", what, err, card)
	}
	decode := func(s string) []byte {
		t.Helper()
		raw, err := base64.RawURLEncoding.DecodeString(s)
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	sig := signed.Signatures[0]
	if err := json.Unmarshal(decode(sig.Protected), &head); err != nil || head.Alg != "EdDSA" || head.Typ != "JOSE" {
		t.Fatalf("%s: the header is %+v, %v", what, head, err)
	}
	var set struct{ Keys []struct{ Kid, X string } }
	ts.requireStatus(t, 200, &set, "GET", strings.TrimPrefix(head.Jku, ts.url), "", nil)
	payload, err := a2agrpc.CanonicalCard([]byte(card))
	if err != nil {
		t.Fatal(err)
	}
	if len(set.Keys) != 1 || set.Keys[0].Kid != head.Kid ||
		!ed25519.Verify(decode(set.Keys[0].X), []byte(sig.Protected+"."+base64.RawURLEncoding.EncodeToString(payload)), decode(sig.Signature)) {
		t.Errorf("%s: the signature does not hold for %s", what, payload)
	}
}
