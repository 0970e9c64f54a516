//go:build linux

package faults_test

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"stoa/cmd/stoa/stoatest"
	"stoa/tenancy/db/dbtest"
)

// Bounds of the memory for received bodies: multiples of the bytes received, and what a process that serves small
// calls also takes at times.
const (
	maxMemoryFactor = 4
	memoryAllowance = 32 << 20
)

// maxHealthTime bounds the slowest /health meanwhile. The goal is 100 ms, which a machine that runs other tests misses at
// times.
const maxHealthTime = time.Second

// targetProcess is a process under attack.
type targetProcess struct {
	*stoatest.Process
	grpcURL     string // address of its gRPC port
	idleMemory  int64  // bytes, after it has served some calls
	client      *http.Client
	http2Client *http.Client
}

const targetConfig = `
llms: {m: {provider: scripted, script: [{then: [{say: ok}]}]}}
agents:
  assistant: {llm: m}
  attacked: {llm: m, trigger: {type: webhook, secret: a-secret-of-the-attacked-hook, response: {mode: async}}}
  open: {llm: m, trigger: {type: webhook, response: {mode: async}}}
`

// startTarget starts a process and has it serve some calls.
func startTarget(t *testing.T, database string, args ...string) *targetProcess {
	t.Helper()
	return startTargetWith(t, targetConfig, database, args...)
}

// startTargetWith is startTarget with a configuration, which has an agent named assistant.
func startTargetWith(t *testing.T, config, database string, args ...string) *targetProcess {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "stoa.yaml")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	port := freePort(t)
	f := &targetProcess{grpcURL: "http://127.0.0.1:" + itoa(port)}
	f.Process = stoatest.StartServing(t, plainBuild.programPath(t), dir, append([]string{"--config", path, "--database", database, "--grpc-port", itoa(port)}, args...)...)
	both := &http.Protocols{}
	both.SetUnencryptedHTTP2(true)
	h2 := &http.Transport{Protocols: both}
	h1 := &http.Transport{MaxIdleConnsPerHost: 64}
	f.client, f.http2Client = &http.Client{Transport: h1, Timeout: time.Minute}, &http.Client{Transport: h2, Timeout: time.Minute}
	t.Cleanup(func() { h1.CloseIdleConnections(); h2.CloseIdleConnections() })
	calm := stoatest.Attack{Path: "/agents/assistant", Header: map[string]string{"Content-Type": "application/json"},
		Body: []byte(`{"jsonrpc":"2.0","id":1,"method":"message:send","params":{"message":{"parts":[{"type":"text","text":"hi"}]}}}`)}
	for range 200 {
		if status, err := f.sendAttack(t.Context(), calm); err != nil || status != http.StatusOK {
			t.Fatalf("a call: %d, %v", status, err)
		}
	}
	f.idleMemory = f.readMemory(t, "VmRSS")
	return f
}

// readMemory returns a memory statistic of the kernel about the process, in bytes.
func (p *targetProcess) readMemory(t *testing.T, name string) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Cmd.Process.Pid))
	if err != nil {
		t.Fatalf("%v\n%s", err, p.Output())
	}
	m := regexp.MustCompile(name + `:\s+(\d+) kB`).FindSubmatch(text)
	if m == nil {
		t.Fatalf("the kernel has no %s", name)
	}
	kb, _ := strconv.ParseInt(string(m[1]), 10, 64)
	return kb << 10
}

// sendAttack sends one attack and returns the HTTP status of the response, 0 = none.
func (p *targetProcess) sendAttack(ctx context.Context, a stoatest.Attack) (int, error) {
	if a.Socket {
		return 0, p.sendOverSocket(ctx, a)
	}
	client, url := p.client, p.URL
	if a.GRPC {
		client, url = p.http2Client, p.grpcURL
	}
	r, err := http.NewRequestWithContext(ctx, cmp.Or(a.Method, http.MethodPost), url+a.Path, bytes.NewReader(a.Body))
	if err != nil {
		return 0, err
	}
	if a.GRPC {
		r.Header.Set("Content-Type", "application/grpc")
		r.Header.Set("Te", "trailers")
	}
	for name, value := range a.Header {
		r.Header.Set(name, value)
	}
	resp, err := client.Do(r)
	if err != nil {
		// The response to a body that is refused while it is sent may be lost.
		return 0, nil
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, nil
}

// sendOverSocket sends an attack as a WebSocket message and waits for the first frame of the response.
func (p *targetProcess) sendOverSocket(ctx context.Context, a stoatest.Attack) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	conn, resp, err := websocket.Dial(ctx, p.URL+a.Path, nil)
	if err != nil {
		return err
	}
	if resp.Body != nil {
		_ = resp.Body.Close()
	}
	defer conn.CloseNow()
	if err := conn.Write(ctx, websocket.MessageText, a.Body); err != nil {
		return nil
	}
	_, _, _ = conn.Read(ctx)
	return nil
}

// measurePeak sends attacks in parallel. It returns by how much the process's memory exceeded that of the idle
// process, and the longest time that /health took meanwhile.
func (p *targetProcess) measurePeak(t *testing.T, attacks ...stoatest.Attack) (over int64, slowest time.Duration) {
	t.Helper()
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", p.Cmd.Process.Pid), []byte("5"), 0); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	var requested sync.WaitGroup
	requested.Go(func() {
		for {
			began := time.Now()
			resp, err := http.Get(p.URL + "/health")
			if err != nil {
				t.Errorf("/health: %v", err)
				return
			}
			_ = resp.Body.Close()
			slowest = max(slowest, time.Since(began))
			select {
			case <-done:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	})
	var sent sync.WaitGroup
	for _, a := range attacks {
		sent.Go(func() {
			if _, err := p.sendAttack(t.Context(), a); err != nil {
				t.Errorf("%s: %v", a.Name(), err)
			}
		})
	}
	sent.Wait()
	close(done)
	requested.Wait()
	return p.readMemory(t, "VmHWM") - p.idleMemory, slowest
}

// checkMemory fails the test if attacks take more memory than allowed, or /health more time.
func (p *targetProcess) checkMemory(t *testing.T, name string, attacks ...stoatest.Attack) {
	t.Helper()
	var received int64
	for _, a := range attacks {
		received += int64(len(a.Body))
	}
	over, slowest := p.measurePeak(t, attacks...)
	reportf(t, "%-40s %8.1f MiB received, peak %7.1f MiB over idle (%.1f), /health %v", name, toMiB(received), toMiB(over), float64(over)/float64(received), slowest.Round(time.Millisecond))
	if over > maxMemoryFactor*received+memoryAllowance {
		t.Errorf("%s: %.1f MiB received, %.1f MiB over idle, want at most %d times as many and %d", name, toMiB(received), toMiB(over), maxMemoryFactor, memoryAllowance>>20)
	}
	if slowest > maxHealthTime {
		t.Errorf("%s: /health took %v, want at most %v", name, slowest, maxHealthTime)
	}
}

func toMiB(n int64) float64 { return float64(n) / (1 << 20) }

// newGzipBomb returns a gRPC message that is small while it is compressed.
func newGzipBomb(size int) stoatest.Attack {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write(stoatest.ProtoMessages(false, size)["empty parts"])
	_ = w.Close()
	return stoatest.Attack{
		Surface: "gRPC 1.0", Shape: "gzip", Path: "/lf.a2a.v1.A2AService/SendMessage", GRPC: true, Body: stoatest.FrameGRPC(true, b.Bytes()),
		Header: map[string]string{"Grpc-Encoding": "gzip"},
	}
}

func repeatAttack(n int, a stoatest.Attack) []stoatest.Attack {
	all := make([]stoatest.Attack, n)
	for i := range all {
		all[i] = a
	}
	return all
}

// TestMemory sends bodies that are meant to take many times their size in memory, and large ordinary ones, to every
// surface.
func TestMemory(t *testing.T) {
	for _, engine := range []string{"sqlite", "postgres"} {
		t.Run(engine, func(t *testing.T) {
			start := func(t *testing.T) *targetProcess {
				if engine == "sqlite" {
					return startTarget(t, "sqlite://stoa.db")
				}
				return startTarget(t, dbtest.NewPostgresURL(t))
			}
			// Each of these gets a process of its own, which ends before the next one starts.
			each := func(name string, attacks ...stoatest.Attack) {
				t.Run(name, func(t *testing.T) { start(t).checkMemory(t, name, attacks...) })
			}
			// Refused bodies leave so little garbage that one process can receive them all.
			one := start(t)
			hostile := append(stoatest.HostileJSON(4<<20), stoatest.HostileNonMessages(1<<20-100, stoatest.AdminSecret)...)
			seen := map[string]int{}
			for i, a := range hostile {
				if seen[a.Surface]++; isFull || engine == "sqlite" && seen[a.Surface] == 1+i%5 || engine == "sqlite" && strings.HasPrefix(a.Shape, "parts") {
					one.checkMemory(t, a.Name(), a)
				}
			}
			for _, a := range stoatest.HonestJSON(16 << 20) {
				if isFull || a.Surface == "extension" {
					each(a.Name()+" of 16 MiB", a)
				}
			}
			for _, a := range stoatest.HostileJSON(27 << 20)[:5] {
				if isFull || a.Shape == "parts of {}" {
					one.checkMemory(t, a.Name()+" of 27 MiB", a)
				}
			}
			// The largest accepted size: just below the bound of values, which data of {} reaches at 150 KB.
			dense := stoatest.HostileJSON(145 << 10)
			for _, a := range dense[2:4] {
				each("24 x "+a.Name()+" below the bound", repeatAttack(24, a)...)
			}
			small := stoatest.HostileJSON(1<<20 - 1024)
			for _, a := range small[:5] {
				one.checkMemory(t, "24 x "+a.Name()+" of 1 MiB", repeatAttack(24, a)...)
			}
			each("24 x honest", repeatAttack(24, stoatest.HonestJSON(1 << 20)[0])...)
			each("gzip", newGzipBomb(12<<20))
		})
	}
}

// TestConfigurationMemory has a tenant save, read and restore configurations that are meant to take many times their
// size. Saving one reads its text several times: to restore masks, to check it and for the audit trail.
func TestConfigurationMemory(t *testing.T) {
	pairs := func(format string, n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, format, i)
		}
		return b.String()
	}
	const valid = "llms: {m: {provider: scripted, script: [{then: [{say: ok}]}]}}\nagents:\n  assistant: {llm: m}\n"
	for _, test := range []struct {
		name, text string
		want       int // HTTP status
	}{
		{"unknown keys on lines", pairs("%x:\n", 39_000), http.StatusBadRequest},
		{"agents without a value", "agents:\n" + pairs(" %x:\n", 39_000), http.StatusBadRequest},
		{"one line of JSON", "{" + strings.TrimSuffix(pairs(`"%x":1,`, 39_000), ",") + "}", http.StatusBadRequest},
		{"empty skills", "agents: {a: {skills: [" + strings.Repeat("{},", 26_000) + "]}}", http.StatusRequestEntityTooLarge},
		{"comments", pairs("%x: # \n", 26_000), http.StatusBadRequest},
		{"many agents", valid + pairs("  a%x: {llm: m, description: d, skills: [{id: a, name: b, tags: [c, d]}]} # api_key: s\n", 1_900), http.StatusOK},
		{"a long text", valid + "  b: {llm: m, instruction: '" + strings.Repeat("word, ", 16_000) + "'}\n", http.StatusOK},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := startTarget(t, "sqlite://stoa.db")
			operator := &client{baseURL: p.URL, token: stoatest.AdminSecret, http: p.client}
			if err := operator.requestJSON(t.Context(), http.MethodPost, "/admin/apps", map[string]any{"name": "acme", "config": valid}, nil); err != nil {
				t.Fatal(err)
			}
			var developer struct {
				Token string `json:"access_token"`
			}
			if err := operator.requestJSON(t.Context(), http.MethodPost, "/admin/apps/acme/tokens", map[string]any{"sub": "dev", "roles": []string{"developer"}}, &developer); err != nil {
				t.Fatal(err)
			}
			newAttack := func(text string) stoatest.Attack {
				return stoatest.Attack{
					Surface: "configuration", Shape: test.name, Method: http.MethodPut, Path: "/config", Body: []byte(text),
					Header: map[string]string{"Content-Type": "application/yaml", "Authorization": "Bearer " + developer.Token},
				}
			}
			send := func(text string, want int) {
				if status, err := p.sendAttack(t.Context(), newAttack(text)); err != nil || status != want {
					t.Errorf("%.40q: HTTP %d, %v, want %d", text, status, err, want)
				}
			}
			a := newAttack(test.text)
			send(valid+"# a comment\n", http.StatusOK)
			p.checkMemory(t, a.Name(), a)
			p.checkMemory(t, "4 x "+a.Name(), repeatAttack(4, a)...)
			send(test.text, test.want)
		})
	}
}
