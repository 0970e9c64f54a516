//go:build linux

package faults_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"stoa/tenancy/db/dbtest"
)

// maxAnswerMemory bounds, in bytes above an idle process, the memory of one app's answers and of what is read of its
// tasks: its share of --answer-memory and the copies of it.
const maxAnswerMemory = 400 << 20

const answersConfig = `
llms:
  m: {provider: scripted, script: [{then: [{say: ok}]}]}
  large: {provider: scripted, script: [{then: [{say: "%s"}]}]}
agents:
  assistant: {llm: m}
  large: {llm: large}
`

// startLargeAnswers starts a process whose agent "large" answers with its input repeated repeat times.
func startLargeAnswers(t *testing.T, engine string, repeat int, args ...string) *targetProcess {
	t.Helper()
	database := "sqlite://stoa.db"
	if engine == "postgres" {
		database = dbtest.NewPostgresURL(t)
	}
	f := startTargetWith(t, fmt.Sprintf(answersConfig, strings.Repeat("{{text}}", repeat)), database, args...)
	f.client.Timeout = 3 * time.Minute
	return f
}

// peakDuring runs attack and returns by how many bytes the process's memory exceeded that of the idle process at
// most.
func (p *targetProcess) peakDuring(t *testing.T, attack func()) int64 {
	t.Helper()
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", p.Cmd.Process.Pid), []byte("5"), 0); err != nil {
		t.Fatal(err)
	}
	attack()
	return p.readMemory(t, "VmHWM") - p.idleMemory
}

// sendText sends a text to an agent in a context, "" = a new one. It returns the status, the task's id and the length
// of the response in bytes.
func (p *targetProcess) sendText(t *testing.T, agent, context, text string) (status int, task string, size int64) {
	t.Helper()
	message := map[string]any{"role": "user", "parts": []any{map[string]any{"text": text}}}
	if context != "" {
		message["contextId"] = context
	}
	body, err := json.Marshal(map[string]any{"message": message, "configuration": map[string]any{"blocking": true}})
	if err != nil {
		t.Error(err)
		return 0, "", 0
	}
	resp, err := p.client.Post(p.URL+"/v1/agents/"+agent+"/message:send", "application/json", bytes.NewReader(body))
	if err != nil {
		t.Error(err)
		return 0, "", 0
	}
	defer resp.Body.Close()
	var head bytes.Buffer
	size, err = io.Copy(io.Discard, io.TeeReader(resp.Body, &prefixWriter{&head, 512}))
	if err != nil {
		t.Error(err)
	}
	if _, after, ok := strings.Cut(head.String(), `"id":"`); ok {
		task, _, _ = strings.Cut(after, `"`)
	}
	return resp.StatusCode, task, size
}

// prefixWriter keeps the first n bytes that are written to it.
type prefixWriter struct {
	buffer *bytes.Buffer
	limit  int
}

func (w *prefixWriter) Write(b []byte) (int, error) {
	w.buffer.Write(b[:min(len(b), w.limit-w.buffer.Len())])
	return len(b), nil
}

// getPath returns the status and the body of a GET request.
func (p *targetProcess) getPath(t *testing.T, path string) (int, []byte) {
	t.Helper()
	resp, err := p.client.Get(p.URL + path)
	if err != nil {
		t.Error(err)
		return 0, nil
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	return resp.StatusCode, body
}

// TestAnswerMemory lets one app produce, read and receive as many bytes as it can by small requests.
func TestAnswerMemory(t *testing.T) {
	for _, engine := range []string{"sqlite", "postgres"} {
		t.Run(engine, func(t *testing.T) {
			atMost := func(t *testing.T, name string, over int64) {
				t.Helper()
				reportf(t, "%-40s peak %7.1f MiB over idle", name, toMiB(over))
				if over > maxAnswerMemory {
					t.Errorf("%s: %.1f MiB over idle, want at most %d", name, toMiB(over), maxAnswerMemory>>20)
				}
			}
			t.Run("large answers at once", func(t *testing.T) {
				for _, repeat := range []int{600, 150} { // 16 MB, and just below 4 MiB
					f := startLargeAnswers(t, engine, repeat)
					const calls = 24
					var complete, other atomic.Int64
					began := time.Now()
					atMost(t, fmt.Sprintf("%d answers of %d times 27 KB", calls, repeat), f.peakDuring(t, func() {
						var all sync.WaitGroup
						for range calls {
							all.Go(func() {
								if status, _, size := f.sendText(t, "large", "", strings.Repeat("x", 27_000)); status == http.StatusOK && size > 27_000*150 {
									complete.Add(1)
								} else {
									other.Add(1)
								}
							})
						}
						all.Wait()
					}))
					reportf(t, "%d whole answers and %d others in %v", complete.Load(), other.Load(), time.Since(began).Round(time.Second))
				}
			})
			t.Run("large messages", func(t *testing.T) {
				f := startLargeAnswers(t, engine, 1)
				const size, count = 16_000_000, 8
				last := ""
				for range count {
					status, id, _ := f.sendText(t, "assistant", "all", strings.Repeat("x", size))
					if status != http.StatusOK {
						t.Fatalf("a message of %d bytes: %d", size, status)
					}
					last = id
				}
				atMost(t, "a page of tasks", f.peakDuring(t, func() { f.checkPages(t, count) }))
				atMost(t, "a small message of a large conversation", f.peakDuring(t, func() { f.sendText(t, "assistant", "all", "hi") }))
				atMost(t, "24 slow readers of a large task", f.peakDuring(t, func() { f.readSlowly(t, 24, "/v1/agents/assistant/tasks/"+last+"?history_length=100") }))
			})
		})
	}
}

// checkPages reads all pages of the assistant's tasks and checks that each has a bounded size and that together they
// have count tasks with a large message.
func (p *targetProcess) checkPages(t *testing.T, count int) {
	t.Helper()
	found, token := 0, ""
	for range 20 {
		status, body := p.getPath(t, "/v1/agents/assistant/tasks?page_size=100&history_length=10&context_id=all&page_token="+token)
		if status != http.StatusOK {
			t.Fatalf("a page: %d %.300s", status, body)
		}
		var page struct {
			Tasks []struct {
				History []json.RawMessage `json:"history"`
			} `json:"tasks"`
			NextPageToken string `json:"nextPageToken"`
		}
		if err := json.Unmarshal(body, &page); err != nil {
			t.Fatal(err)
		}
		if len(body) > 40<<20 {
			t.Errorf("a page has %d bytes", len(body))
		}
		for _, task := range page.Tasks {
			if len(task.History) > 0 {
				found++
			}
		}
		if token = page.NextPageToken; token == "" {
			break
		}
	}
	if found != count {
		t.Errorf("%d tasks with their messages on all pages, want %d", found, count)
	}
}

// readSlowly sends a request n times and reads nothing until all are sent and the process has had time to prepare the
// responses. Then it reads the beginning of each.
func (p *targetProcess) readSlowly(t *testing.T, n int, path string) {
	t.Helper()
	conns := make([]net.Conn, n)
	for i := range conns {
		conn, err := net.Dial("tcp", strings.TrimPrefix(p.URL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.(*net.TCPConn).SetReadBuffer(4096)
		if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", path); err != nil {
			t.Fatal(err)
		}
		conns[i] = conn
	}
	statuses := map[string]int{}
	for _, conn := range conns { // a response, or the error of one that could not be prepared
		_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
		line, err := bufio.NewReaderSize(conn, 16).ReadString('\n')
		if err != nil {
			t.Errorf("a slow reader: %v", err)
		}
		statuses[strings.TrimSpace(line)]++
	}
	reportf(t, "slow readers: %v", statuses)
}
