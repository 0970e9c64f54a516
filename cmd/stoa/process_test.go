package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"stoa/tenancy/db/dbtest"
)

// process is a real stoa process.
type process struct {
	*testHouse
	cmd  *exec.Cmd
	out  *transcriptOf
	done chan error
}

// transcriptOf keeps what a process says.
type transcriptOf struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *transcriptOf) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *transcriptOf) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

var servesAt = regexp.MustCompile(`serves at (http://\S+)`)

// serveIn starts stoa serve in a folder and waits until it serves.
func serveIn(t *testing.T, dir string, args ...string) *process {
	t.Helper()
	p := startIn(t, dir, args...)
	deadline := time.Now().Add(30 * time.Second)
	for {
		if m := servesAt.FindStringSubmatch(p.out.String()); m != nil {
			p.testHouse = &testHouse{url: m[1]}
			return p
		}
		select {
		case err := <-p.done:
			t.Fatalf("stoa serve ended: %v\n%s", err, p.out)
		case <-time.After(5 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatalf("stoa serve does not serve:\n%s", p.out)
		}
	}
}

// startIn starts stoa serve in a folder.
func startIn(t *testing.T, dir string, args ...string) *process {
	t.Helper()
	p := &process{out: &transcriptOf{}, done: make(chan error, 1)}
	p.cmd = exec.Command("stoa", append([]string{"serve", "--host", "127.0.0.1", "--port", "0"}, args...)...)
	p.cmd.Dir = dir
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.out
	p.cmd.Env = append(os.Environ(), adminSecretName+"="+testSecret, masterKeyName+"=AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=")
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { p.done <- p.cmd.Wait() }()
	t.Cleanup(func() {
		if p.cmd.ProcessState == nil {
			_ = p.cmd.Process.Kill()
			<-p.done
		}
	})
	return p
}

// end sends a signal and waits for the process to end.
func (p *process) end(t *testing.T, s syscall.Signal) error {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-p.done:
		return err
	case <-time.After(40 * time.Second):
		t.Fatalf("the process does not end on %v:\n%s", s, p.out)
		return nil
	}
}

// slowApp is an app whose agent takes two seconds over each answer.
const slowApp = `
llms: {m: {provider: scripted, script: [{when: {text: "^slow"}, then: [{say: "one ", pause: 2s}, {say: two}]}, {then: [{say: "%s: {{text}}"}]}]}}
agents: {assistant: {llm: m}}
`

func (h *testHouse) create(t *testing.T, name, config string) {
	t.Helper()
	h.want(t, http.StatusCreated, nil, "POST", "/admin/apps", testSecret, map[string]any{"name": name, "config": config})
}

type taskAnswer struct {
	Result struct {
		TaskID string `json:"task_id"`
		Status struct {
			State   string
			Message struct{ Parts []struct{ Text string } }
		}
	}
}

// text is what the task's agent said last.
func (a taskAnswer) text() string {
	var b strings.Builder
	for _, p := range a.Result.Status.Message.Parts {
		b.WriteString(p.Text)
	}
	return b.String()
}

// databases are the addresses that process tests run on.
func databases(t *testing.T, f func(t *testing.T, dir, database string)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) { t.Parallel(); f(t, t.TempDir(), "sqlite://stoa.db") })
	t.Run("postgres", func(t *testing.T) { t.Parallel(); f(t, t.TempDir(), dbtest.PostgresURL(t)) })
}

// TestKill kills a process in the middle of a call. The next one on the same database finishes the task.
func TestKill(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, dir, database string) {
		args := []string{"--database", database, "--queue-stale-threshold", "1s"}
		first := serveIn(t, dir, args...)
		first.create(t, "acme", fmt.Sprintf(slowApp, "acme"))
		token := first.token(t, "acme", "ana", nil)
		cut := make(chan error, 1)
		req := first.request(t, "POST", "/agents/assistant", token, rpc("message:send", words("slow please", "message_id", "m1")))
		go func() {
			resp, err := http.DefaultClient.Do(req)
			if err == nil {
				resp.Body.Close()
			}
			cut <- err
		}()
		var list struct {
			Tasks []struct {
				TaskID string `json:"task_id"`
			}
		}
		for len(list.Tasks) == 0 {
			first.want(t, http.StatusOK, &list, "GET", "/tasks", token, nil)
		}
		_ = first.end(t, syscall.SIGKILL)
		if err := <-cut; err == nil {
			t.Fatal("the call was answered before the kill")
		}

		second := serveIn(t, dir, args...)
		began := time.Now()
		var got taskAnswer
		for got.Result.Status.State != "completed" {
			if time.Since(began) > 15*time.Second {
				t.Fatalf("the task is %s: %s", got.Result.Status.State, second.out)
			}
			time.Sleep(20 * time.Millisecond)
			got = taskAnswer{}
			second.want(t, http.StatusOK, &got, "POST", "/agents/assistant", token, rpc("tasks/get", map[string]any{"id": list.Tasks[0].TaskID}))
		}
		if got.text() != "one two" {
			t.Errorf("the task says %q", got.text())
		}
		// Whoever was cut off sends the same message again and finds the same task.
		var again taskAnswer
		second.want(t, http.StatusOK, &again, "POST", "/agents/assistant", token, rpc("message:send", words("slow please", "message_id", "m1")))
		if again.Result.TaskID != list.Tasks[0].TaskID {
			t.Errorf("the same message opened task %s, want %s", again.Result.TaskID, list.Tasks[0].TaskID)
		}
	})
}

// TestDrain stops a process in the middle of a call: the call is answered before the process ends.
func TestDrain(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, dir, database string) {
		p := serveIn(t, dir, "--database", database)
		p.create(t, "acme", fmt.Sprintf(slowApp, "acme"))
		token := p.token(t, "acme", "ana", nil)
		req := p.request(t, "POST", "/agents/assistant", token, rpc("message:send", words("slow")))
		type answer struct {
			got taskAnswer
			err error
		}
		answered := make(chan answer, 1)
		go func() {
			var a answer
			resp, err := http.DefaultClient.Do(req)
			if err == nil {
				err = json.NewDecoder(resp.Body).Decode(&a.got)
				resp.Body.Close()
			}
			a.err = err
			answered <- a
		}()
		time.Sleep(500 * time.Millisecond)
		if err := p.end(t, syscall.SIGTERM); err != nil {
			t.Errorf("the process ended with %v:\n%s", err, p.out)
		}
		if a := <-answered; a.err != nil || a.got.text() != "one two" {
			t.Errorf("the call was answered %+v, %v", a.got, a.err)
		}
	})
}

// TestTwoProcesses serves one PostgreSQL twice: each answers every tenant, and a change made at one is in force at
// the other within two seconds.
func TestTwoProcesses(t *testing.T) {
	t.Parallel()
	database := dbtest.PostgresURL(t)
	one, two := serveIn(t, t.TempDir(), "--database", database), serveIn(t, t.TempDir(), "--database", database)
	both := []*process{one, two}
	tokens := map[string]string{}
	for i, app := range []string{"acme", "globex"} {
		both[i].create(t, app, fmt.Sprintf(slowApp, app))
		tokens[app] = both[i].token(t, app, "ana", nil)
	}
	ask := func(p *process, app string) string {
		var got taskAnswer
		p.want(t, http.StatusOK, &got, "POST", "/agents/assistant", tokens[app], rpc("message:send", words("hi")))
		return got.text()
	}
	for _, p := range both {
		for app := range tokens {
			if got := ask(p, app); got != app+": hi" {
				t.Errorf("%s at %s says %q", app, p.url, got)
			}
		}
	}
	one.want(t, http.StatusOK, nil, "PUT", "/admin/apps/acme", testSecret, map[string]any{"config": fmt.Sprintf(slowApp, "new acme")})
	within(t, 2*time.Second, "the new revision serves at the other process", func() bool { return ask(two, "acme") == "new acme: hi" })
	one.want(t, http.StatusOK, nil, "POST", "/admin/apps/globex:suspend", testSecret, map[string]any{})
	within(t, 2*time.Second, "the other process refuses the suspended app", func() bool {
		status, _ := two.ask(t, "POST", "/agents/assistant", tokens["globex"], rpc("message:send", words("hi")))
		return status == http.StatusForbidden
	})
	one.want(t, http.StatusNoContent, nil, "DELETE", "/admin/apps/acme", testSecret, nil)
	within(t, 2*time.Second, "the other process refuses tokens of the deleted app", func() bool {
		status, _ := two.ask(t, "POST", "/agents/assistant", tokens["acme"], rpc("message:send", words("hi")))
		return status == http.StatusUnauthorized
	})
}

func within(t *testing.T, d time.Duration, what string, holds func() bool) {
	t.Helper()
	for began := time.Now(); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Since(began) > d {
			t.Fatalf("after %v it does not hold that %s", d, what)
		}
	}
}

// TestCardAddress wants the URL of a card to be where the server was found.
func TestCardAddress(t *testing.T) {
	t.Parallel()
	p := serveIn(t, t.TempDir())
	var card struct{ URL string }
	p.want(t, http.StatusOK, &card, "GET", "/agents/assistant", "", nil)
	if want := p.url + "/agents/assistant"; card.URL != want {
		t.Errorf("the card says %s, want %s", card.URL, want)
	}
}

// TestRefusesToStart wants one clear line and exit code 1 for each way a start can go wrong.
func TestRefusesToStart(t *testing.T) {
	t.Parallel()
	taken := serveIn(t, t.TempDir())
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, c := range []struct {
		name string
		args []string
		want string
	}{
		{"port taken", []string{"--port", taken.url[strings.LastIndex(taken.url, ":")+1:]}, "address already in use"},
		{"second process on a file", []string{"--database", "sqlite://" + filepath.Join(taken.cmd.Dir, "stoa.db")}, "in use by another process"},
		{"file not writable", []string{"--database", "sqlite:///proc/stoa.db"}, "/proc/stoa.db"},
		{"no PostgreSQL there", []string{"--database", "postgres://nobody@127.0.0.1:1/none?connect_timeout=1"}, "connect to PostgreSQL at 127.0.0.1:1"},
		{"no database URL", []string{"--database", "mysql://x"}, "sqlite:// or postgres://"},
		{"typo in the file", []string{"--config", write("typo.yaml", "agnets: {}\n")}, "typo.yaml:1:1"},
		{"no such file", []string{"--config", filepath.Join(dir, "none.yaml")}, "none.yaml"},
		{"half a process on a file", []string{"--role", "worker"}, "--role worker needs PostgreSQL"},
		{"bad Redis", []string{"--redis", "http://x"}, "--redis"},
		{"bad public URL", []string{"--public-url", "https://x?y"}, "public URL"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := startIn(t, t.TempDir(), c.args...)
			select {
			case <-p.done:
			case <-time.After(30 * time.Second):
				t.Fatalf("it starts all the same:\n%s", p.out)
			}
			if code := p.cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(p.out.String(), c.want) {
				t.Errorf("exit code %d, %q; want 1 and %q", code, p.out, c.want)
			}
			if strings.Contains(p.out.String(), testSecret) {
				t.Error("the output holds the admin secret")
			}
		})
	}
}

// TestWatch changes the configuration file and its .env under a serving process: good changes act without a restart
// and leave sessions and tasks alone, a bad one changes nothing.
func TestWatch(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	config := func(greeting string) string {
		return fmt.Sprintf(`
llms: {m: {provider: scripted, script: [{when: {text: "^ask$"}, then: [{ask: "what?"}]}, {then: [{say: "%s: {{text}}"}]}]}}
agents: {assistant: {llm: m}}
`, greeting)
	}
	write("stoa.yaml", config("one"))
	p := serveIn(t, dir, "--config", "stoa.yaml", "--watch")
	send := func(m map[string]any) (got taskAnswer) {
		p.want(t, http.StatusOK, &got, "POST", "/agents/assistant", "", rpc("message:send", m))
		return got
	}
	says := func(want string) func() bool {
		return func() bool { got := send(words("hi")); return got.text() == want }
	}
	waiting := send(words("ask"))
	within(t, 5*time.Second, "the file serves", says("one: hi"))
	write("stoa.yaml", config("two"))
	within(t, 5*time.Second, "a changed file serves", says("two: hi"))
	write("stoa.yaml", "agnets: {}\n")
	within(t, 5*time.Second, "a broken file is told", func() bool { return strings.Contains(p.out.String(), "agnets") })
	if !says("two: hi")() {
		t.Error("a broken file replaced the one before")
	}
	write("stoa.yaml", config("two")+"server: {port: 9999}\n")
	within(t, 5*time.Second, "a change that takes a restart is told", func() bool { return strings.Contains(p.out.String(), "take a restart") })
	write("stoa.yaml", config("${GREETING:three}"))
	within(t, 5*time.Second, "a mended file serves", says("three: hi"))
	write(".env", "GREETING=four\n")
	within(t, 5*time.Second, "a changed .env serves", says("four: hi"))
	answer := words("go on")
	answer["message"].(map[string]any)["task_id"] = waiting.Result.TaskID
	if got := send(answer); got.text() != "four: go on" {
		t.Errorf("the task that waited goes on with %q", got.text())
	}
}

// TestSuspend suspends an app in the middle of a call, and deletes it in the middle of another: whoever waits is told
// within two seconds, and nothing of a deleted app is left.
func TestSuspend(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, dir, database string) {
		p := serveIn(t, dir, "--database", database)
		p.create(t, "acme", fmt.Sprintf(slowApp, "acme"))
		token := p.token(t, "acme", "ana", nil)
		type answer struct {
			status int
			body   string
		}
		begin := func(method string) chan answer {
			req := p.request(t, "POST", "/agents/assistant", token, rpc(method, words("slow")))
			answered := make(chan answer, 1)
			go func() {
				resp, err := http.DefaultClient.Do(req)
				if err != nil {
					answered <- answer{0, err.Error()}
					return
				}
				defer resp.Body.Close()
				raw, err := io.ReadAll(resp.Body)
				if err != nil {
					raw = append(raw, err.Error()...)
				}
				answered <- answer{resp.StatusCode, string(raw)}
			}()
			return answered
		}
		ended := func(what string, answered chan answer, want string) {
			select {
			case a := <-answered:
				if !strings.Contains(a.body, want) {
					t.Errorf("%s: %d %s, want %s", what, a.status, a.body, want)
				}
			case <-time.After(1500 * time.Millisecond): // the call itself takes two seconds
				t.Errorf("%s: still waiting", what)
			}
		}
		send, stream := begin("message:send"), begin("message:stream")
		time.Sleep(300 * time.Millisecond)
		p.want(t, http.StatusOK, nil, "POST", "/admin/apps/acme:suspend", testSecret, map[string]any{"reason": "unpaid"})
		ended("a blocking call of a suspended app", send, "PERMISSION_DENIED")
		ended("a stream of a suspended app", stream, "suspended")
		p.want(t, http.StatusOK, nil, "POST", "/admin/apps/acme:resume", testSecret, nil)
		within(t, 15*time.Second, "what rested goes on", func() bool {
			var list struct {
				Tasks []struct{ Status struct{ State string } }
			}
			p.want(t, http.StatusOK, &list, "GET", "/tasks?status=completed", token, nil)
			return len(list.Tasks) == 2
		})
		send = begin("message:send")
		time.Sleep(300 * time.Millisecond)
		p.want(t, http.StatusNoContent, nil, "DELETE", "/admin/apps/acme", testSecret, nil)
		ended("a blocking call of a deleted app", send, "not found")
		p.create(t, "acme", fmt.Sprintf(slowApp, "acme"))
		if status, body := p.ask(t, "POST", "/agents/assistant", token, rpc("message:send", words("hi"))); status != http.StatusUnauthorized {
			t.Errorf("a token of the app that was deleted: %d %s", status, body)
		}
	})
}

// TestFilesDiffer gives two processes of one database different configuration files: both say so.
func TestFilesDiffer(t *testing.T) {
	t.Parallel()
	database := dbtest.PostgresURL(t)
	var both []*process
	for _, greeting := range []string{"one", "two"} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "stoa.yaml"), fmt.Appendf(nil, slowApp, greeting), 0o600); err != nil {
			t.Fatal(err)
		}
		both = append(both, serveIn(t, dir, "--database", database, "--config", "stoa.yaml", "--queue-stale-threshold", "1s"))
	}
	for _, p := range both {
		within(t, 10*time.Second, "the process warns of the other's file", func() bool {
			return strings.Contains(p.out.String(), "another configuration file")
		})
	}
}
