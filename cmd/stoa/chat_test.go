package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"

	"stoa/cmd/stoa/stoatest"
	"stoa/tenancy/db/dbtest"
)

// talkingApp asks, waits for an approval, and takes long.
const talkingApp = `
llms:
  m:
    provider: scripted
    script:
      - when: {text: "^slow"}
        then: [{say: "one "}, {pause: 5m}, {say: two}]
      - when: {text: "^ask$"}
        then: [{ask: "Which city?"}]
      - when: {tool_result: calc}
        then: [{say: "It is {{result}}."}]
      - when: {text: "^sum$"}
        then: [{call: {tool: calc, arguments: {expression: "1+1"}}}]
      - then: [{say: "You said: {{text}}"}]
tools: {calc: {type: function, handler: calculator, require_approval: true}}
agents: {assistant: {llm: m, tools: [calc]}}
`

// TestChat talks with an agent at a terminal: a question, an approval, a task that is interrupted, and the end.
func TestChat(t *testing.T) {
	t.Parallel()
	h := openTestServer(t, dbtest.NewSQLiteURL(t))
	h.createApp(t, "acme", talkingApp)
	token := h.createToken(t, "acme", "ana", map[string]any{"roles": []string{"operator"}})
	var written bytes.Buffer
	con := &console{in: strings.NewReader("hello\nask\nRome\nsum\ny\nslow\nhello again\n/exit\nnot sent\n"), err: &written, interactive: true}
	// The first piece of the slow answer is the moment of the interrupt.
	con.out = writerFunc(func(p []byte) (int, error) {
		if string(p) == "one " && !con.interrupts.deliver() {
			t.Error("the interrupt would end the program")
		}
		return written.Write(p)
	})
	if err := (&chatCmd{tenantFlags: h.newTenantFlags(token), Agent: "assistant", Context: "c1"}).Run(t.Context(), con); err != nil {
		t.Errorf("ends with %v", err)
	}
	call := `calc({"expression":"1+1"})`
	want := "> You said: hello\n> Which city?\n> You said: Rome\n> > " + call + "\nMay calc run?\n" + call + " [y/n] It is 2.\n" +
		"> one \nstoa: the task was cancelled\n> You said: hello again\n> continue with: stoa chat assistant --context c1 --server " + h.url + "\n"
	if got := written.String(); got != want {
		t.Errorf("wrote %q, want %q", got, want)
	}
	if con.interrupts.deliver() {
		t.Error("an interrupt after the conversation does not end the program")
	}
}

// TestChatInterruptedTwice checks that a second interrupt during one answer ends the program, also if the server does not
// answer the request to cancel the task.
func TestChatInterruptedTwice(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	con := &console{in: strings.NewReader("hi\nnot sent\n")}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/tasks/t-1/cancel") {
			if con.interrupts.deliver() {
				t.Error("the second interrupt does not end the program")
			}
			cancel() // as main does then
			<-r.Context().Done()
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data: {\"task_id\":\"t-1\",\"status\":{\"state\":\"working\",\"message\":{\"parts\":[{\"type\":\"text\",\"text\":\"Well\"}]}}}\n\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	t.Cleanup(srv.Close)
	var written bytes.Buffer
	con.err = &written
	con.out = writerFunc(func(p []byte) (int, error) {
		if string(p) == "Well" && !con.interrupts.deliver() {
			t.Error("the first interrupt ends the program")
		}
		return written.Write(p)
	})
	err := (&chatCmd{tenantFlags: (&testServer{url: srv.URL}).newTenantFlags(""), Agent: "a", Context: "c1"}).Run(ctx, con)
	if err == nil || !strings.Contains(written.String(), "the task t-1 goes on without us") {
		t.Errorf("%v, wrote %q", err, written.String())
	}
}

// TestCallAnswers checks that stoa call asks at a terminal for the answer to a question and continues the task with it.
func TestCallAnswers(t *testing.T) {
	t.Parallel()
	h := openTestServer(t, dbtest.NewSQLiteURL(t))
	h.createApp(t, "acme", talkingApp)
	token := h.createToken(t, "acme", "ana", nil)
	for _, c := range []struct {
		typed, want string
		code        int
	}{
		{"Rome\n", "Which city?\n> You said: Rome\n", 0},
		{"\n", "Which city?\n> task ", exitWaiting},
		{"", "Which city?\n> \ntask ", exitWaiting},
	} {
		var written bytes.Buffer
		con := &console{in: strings.NewReader(c.typed), out: &written, err: &written, interactive: true}
		err := (&callCmd{tenantFlags: h.newTenantFlags(token), Agent: "assistant", Text: "ask"}).Run(t.Context(), con)
		if code := con.reportError(err); code != c.code || !strings.HasPrefix(written.String(), c.want) {
			t.Errorf("typed %q: exit code %d, wrote %q", c.typed, code, written.String())
		}
	}
}

// TestChatProcess interrupts the process of a chat while its first task runs: the task is cancelled, and the next line is
// sent.
func TestChatProcess(t *testing.T) {
	t.Parallel()
	started, cancelled := make(chan struct{}), make(chan struct{})
	sh := exec.CommandContext(t.Context(), "stoa", "chat", "a", "--context", "c1")
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		switch {
		case strings.HasSuffix(r.URL.Path, "/tasks/t-1/cancel"):
			close(cancelled)
		case strings.Contains(string(body), "first"):
			fmt.Fprint(w, "data: {\"task_id\":\"t-1\",\"status\":{\"state\":\"working\"}}\n\n")
			_ = http.NewResponseController(w).Flush()
			<-started
			if err := sh.Process.Signal(os.Interrupt); err != nil {
				t.Error(err)
			}
			<-cancelled
			fmt.Fprint(w, "data: {\"task_id\":\"t-1\",\"status\":{\"state\":\"cancelled\"}}\n\n")
		default:
			fmt.Fprint(w, "data: {\"task_id\":\"t-2\",\"status\":{\"state\":\"completed\",\"message\":{\"parts\":[{\"type\":\"text\",\"text\":\"Hi.\"}]}}}\n\n")
		}
	}))
	t.Cleanup(srv.Close)
	sh.Env = stoatest.Environment("STOA_SERVER=" + srv.URL)
	sh.Stdin = strings.NewReader("first\nsecond\n")
	var out bytes.Buffer
	sh.Stdout, sh.Stderr = &out, &out
	if err := sh.Start(); err != nil {
		t.Fatal(err)
	}
	close(started)
	if err := sh.Wait(); err != nil || out.String() != "stoa: the task was cancelled\nHi.\n" {
		t.Errorf("%v: %q", err, out.String())
	}
}
