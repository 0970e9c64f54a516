package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/testscript"
	"go.yaml.in/yaml/v3"

	"stoa/agentsvc/document/extract"
	"stoa/agentsvc/sandbox"
	"stoa/cmd/stoa/server"
	"stoa/cmd/stoa/stoatest"
)

// programVariable names the program that the tests start as stoa, bin/stoa in `make test`: it starts in a fraction of the time
// that a binary with the race detector needs. Without it they start this test's own binary.
const programVariable = "STOA_TEST_PROGRAM"

// TestMain provides the command stoa to tests and their scripts.
func TestMain(m *testing.M) {
	sandbox.RunHelper(os.Getenv(sandbox.HelperVariable)) // the server in this binary starts itself as the helper
	extract.RunHelper(os.Getenv(extract.HelperVariable))
	commands := map[string]func(){"stoa": main}
	if program := os.Getenv(programVariable); program != "" {
		// The go command repeats a test whose files have changed. It knows of this one by the call of Stat.
		if _, err := os.Stat(program); err != nil || filepath.Base(program) != "stoa" {
			log.Fatalf("%s=%s is no program stoa (%v)", programVariable, program, err)
		}
		if err := os.Setenv("PATH", filepath.Dir(program)+string(os.PathListSeparator)+os.Getenv("PATH")); err != nil {
			log.Fatal(err)
		}
		delete(commands, "stoa")
	}
	testscript.Main(testRunner{m}, commands)
}

// testRunner runs the tests in an environment with the secrets of their servers. Tests wait for processes more than
// they compute, so that more of them run in parallel than usual.
type testRunner struct{ *testing.M }

func (r testRunner) Run() int {
	if err := flag.Set("test.parallel", strconv.Itoa(2*runtime.GOMAXPROCS(0))); err != nil {
		panic(err)
	}
	for name, value := range map[string]string{server.AdminSecretName: testSecret, server.MasterKeyName: stoatest.MasterKey} {
		if err := os.Setenv(name, value); err != nil {
			panic(err)
		}
	}
	return r.M.Run()
}

// TestScripts runs the command line as a user does, against a server that plays a recorded dialogue.
func TestScripts(t *testing.T) {
	t.Parallel()
	examples, err := filepath.Abs("../../examples")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("EXAMPLES", examples)
			env.Setenv("GORACE", os.Getenv("GORACE"))
			env.Values["dialogue"] = &dialogue{}
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"serve":  cmdServe,
			"served": cmdServed,
			"code":   cmdCode,
		},
	})
}

// cmdServe implements serve FILE: it starts a server that plays the dialogue of FILE.
func cmdServe(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: serve FILE")
	}
	d := ts.Value("dialogue").(*dialogue)
	*d = dialogue{}
	if err := yaml.Unmarshal([]byte(ts.ReadFile(args[0])), &d.exchanges); err != nil {
		ts.Fatalf("read %s: %v", args[0], err)
	}
	server := httptest.NewServer(d)
	ts.Defer(server.Close)
	ts.Setenv("STOA_SERVER", server.URL)
}

// cmdServed implements served: it checks that the dialogue was completed with the expected requests.
func cmdServed(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: served")
	}
	d := ts.Value("dialogue").(*dialogue)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.failure != "" {
		ts.Fatalf("%s", d.failure)
	}
	if len(d.exchanges) > 0 {
		ts.Fatalf("no request for %s", d.exchanges[0].Request)
	}
}

// cmdCode implements code N COMMAND...: it runs a command and checks its exit code.
func cmdCode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N COMMAND...")
	}
	got := "exit status 0"
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		got = err.Error()
	}
	if want := "exit status " + args[0]; got != want {
		ts.Fatalf("%s: got %s, want %s", strings.Join(args[1:], " "), got, want)
	}
}

// exchange is a request that a dialogue expects and its response.
type exchange struct {
	Request string            `yaml:"request"` // method and path
	Bearer  string            `yaml:"bearer"`
	Header  map[string]string `yaml:"header"`
	Body    string            `yaml:"body"`   // JSON; a message's id is written as *
	Status  int               `yaml:"status"` // default 200
	Retry   string            `yaml:"retry"`  // the Retry-After header
	Answer  string            `yaml:"answer"`
	Stream  []string          `yaml:"stream"` // instead of a JSON response
}

// dialogue is a server that expects its exchanges in order.
type dialogue struct {
	mu        sync.Mutex
	exchanges []exchange
	failure   string
}

func (d *dialogue) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.exchanges) == 0 {
		d.failRequest(w, fmt.Sprintf("nothing more was to come, but %s %s did", r.Method, r.URL))
		return
	}
	e := d.exchanges[0]
	d.exchanges = d.exchanges[1:]
	if diff := cmp.Diff(e.expectedRequest(), readWireRequest(r, e.Header)); diff != "" {
		d.failRequest(w, "wrong request (-want +got):\n"+diff)
		return
	}
	if e.Retry != "" {
		w.Header().Set("Retry-After", e.Retry)
	}
	if e.Stream == nil {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(max(e.Status, 200))
		io.WriteString(w, e.Answer)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	for i, data := range e.Stream {
		fmt.Fprintf(w, ": keep-alive\n\nid: %d\ndata: %s\n\n", i+1, data)
		w.(http.Flusher).Flush()
	}
}

func (d *dialogue) failRequest(w http.ResponseWriter, wrong string) {
	d.failure = wrong
	http.Error(w, wrong, http.StatusTeapot)
}

// wireRequest is the part of a request that is compared.
type wireRequest struct {
	Line   string
	Bearer string
	Header map[string]string
	Body   any
}

func (e exchange) expectedRequest() wireRequest {
	return wireRequest{Line: e.Request, Bearer: e.Bearer, Header: e.Header, Body: decodeBody(e.Body)}
}

func readWireRequest(r *http.Request, headers map[string]string) wireRequest {
	body, _ := io.ReadAll(r.Body)
	got := wireRequest{
		Line:   r.Method + " " + r.URL.RequestURI(),
		Bearer: strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "),
		Body:   decodeBody(string(body)),
	}
	for name := range headers {
		if got.Header == nil {
			got.Header = map[string]string{}
		}
		got.Header[name] = r.Header.Get(name)
	}
	return got
}

// decodeBody decodes JSON and replaces what differs from call to call.
func decodeBody(body string) any {
	if body == "" {
		return nil
	}
	var v map[string]any
	if err := json.Unmarshal([]byte(body), &v); err != nil {
		return err.Error()
	}
	if params, ok := v["params"].(map[string]any); ok {
		if message, ok := params["message"].(map[string]any); ok && message["message_id"] != "" {
			message["message_id"] = "*"
		}
	}
	return v
}

// TestSecretsFile finds the secrets file next to a server's database.
func TestSecretsFile(t *testing.T) {
	t.Parallel()
	tests := []struct{ database, want string }{
		{"", "stoa.secrets"},
		{"sqlite://stoa.db", "stoa.secrets"},
		{"sqlite:///var/lib/stoa/stoa.db?mode=rwc", "/var/lib/stoa/stoa.secrets"},
		{"sqlite://:memory:", "stoa.secrets"},
		{"postgres://stoa@db/stoa", "stoa.secrets"},
	}
	for _, tt := range tests {
		t.Run(tt.database, func(t *testing.T) {
			if got := server.SecretsFile(tt.database); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// TestEvents reads event streams in the formats that the standard allows.
func TestEvents(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, stream string
		want         []string
	}{
		{"one", "data: a\n\n", []string{"a"}},
		{"id, comment and carriage returns", ": hello\r\n\r\nid: 1\r\nevent: x\r\ndata:a\r\n\r\n", []string{"a"}},
		{"several lines", "data: a\ndata: b\n\ndata: c\n\n", []string{"a\nb", "c"}},
		{"cut off", "data: a\n\ndata: b\n", []string{"a"}},
		{"without data", "id: 7\n\nretry: 100\n\n", nil},
		{"empty data", "data:\n\n", []string{""}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for data, err := range readEvents(strings.NewReader(tt.stream)) {
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, data)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestTerminal checks that an agent's text cannot control the terminal and is unchanged in files.
func TestTerminal(t *testing.T) {
	t.Parallel()
	for _, shown := range []bool{true, false} {
		var out strings.Builder
		c := &console{out: &out, err: os.Stderr, outIsTerminal: shown}
		c.printText("a\x1b]0;owned\x07\u009bb\n\tc")
		want := "a\x1b]0;owned\x07\u009bb\n\tc"
		if shown {
			want = "a]0;ownedb\n\tc"
		}
		if out.String() != want {
			t.Errorf("on a terminal %t: got %q, want %q", shown, out.String(), want)
		}
	}
}
