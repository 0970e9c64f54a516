package llmtest

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc/egress"
	"stoa/agentsvc/llm"
)

// NewLocalClient returns an egress client that may call this machine.
func NewLocalClient(t *testing.T) *http.Client {
	t.Helper()
	c := egress.New(egress.Options{PrivateNetwork: true})
	t.Cleanup(c.Close)
	return c.HTTP()
}

// operatorCanary is the value of every variable that [RequireEnvironmentIgnored] sets.
const operatorCanary = "canary-of-the-operator"

// RequireEnvironmentIgnored sets the environment variables that a vendor's library reads, and checks that a provider
// without a key sends one request, to the given server, with nothing of them: a tenant's server must not receive the
// operator's credentials. newProvider gets the server's URL; status is the server's answer to a call without a key.
func RequireEnvironmentIgnored(t *testing.T, variables []string, status int, newProvider func(url string) llm.Provider) {
	t.Helper()
	for _, name := range variables {
		value := operatorCanary
		switch {
		case strings.HasSuffix(name, "_HEADERS"):
			value = "X-Canary: " + operatorCanary
		case strings.HasSuffix(name, "_URL"), strings.HasSuffix(name, "_HOST"):
			value = "http://" + operatorCanary + ".example"
		case strings.Contains(name, "_USE_"), strings.HasSuffix(name, "_AUTH"):
			value = "1"
		}
		t.Setenv(name, value)
	}
	srv := NewServer(t, suiteScript)
	a := CollectAnswer(t.Context(), t, newProvider(srv.URL), UserConversation("hello"))
	got := http.StatusOK
	if e := (*llm.Error)(nil); errors.As(a.Err, &e) {
		got = e.Status
	}
	if got != status {
		t.Errorf("error = %v, want status %d", a.Err, status)
	}
	sent := srv.Requests()
	if len(sent) != 1 {
		t.Fatalf("%d requests (%v), want 1 at the given server", len(sent), a.Err)
	}
	header, err := json.Marshal(sent[0].Header)
	if err != nil {
		t.Fatal(err)
	}
	if all := string(header) + sent[0].URL + string(sent[0].Body); strings.Contains(all, operatorCanary) {
		t.Errorf("the environment was sent: %s", all)
	}
	for name := range sent[0].Header {
		if name == "Authorization" || strings.HasSuffix(name, "-Api-Key") || strings.HasPrefix(name, "X-Stainless-") || strings.HasPrefix(name, "X-Goog-") {
			t.Errorf("header %s was sent", name)
		}
	}
	if agent := sent[0].Header.Get("User-Agent"); agent != "stoa" {
		t.Errorf("the user agent is %q", agent)
	}
}

// RequireSameJSON compares two JSON texts by value.
func RequireSameJSON(t *testing.T, want string, got []byte) {
	t.Helper()
	var wanted, actual any
	if err := json.Unmarshal([]byte(want), &wanted); err != nil {
		t.Fatalf("want: %v", err)
	}
	if err := json.Unmarshal(got, &actual); err != nil {
		t.Fatalf("got: %v", err)
	}
	if diff := cmp.Diff(wanted, actual); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
