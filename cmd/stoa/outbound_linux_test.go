package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"stoa/tenancy/db/dbtest"
)

// ownAddress is a public address that the network of [TestOutbound] has.
const ownAddress = "93.184.215.14"

// forbidden are hosts that an app without the grant private_network may not reach, in every form in which one could be written.
var forbidden = []string{
	"127.0.0.1", "127.9.9.9", "localhost", "[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "2130706433", "0x7f000001", "0177.0.0.1", "127.1",
	"0.0.0.0", "[::]", "10.0.0.1", "172.16.0.1", "192.168.0.1", "100.64.0.1", "169.254.169.254", "[::ffff:169.254.169.254]", "168.63.129.16", "100.100.100.200",
	"[fd00::1]", "[fe80::1]", "[fd00:ec2::254]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", ownAddress, "[::ffff:" + ownAddress + "]",
}

// way is one way for an app to have the server call an address.
type way struct {
	name string
	// config is the app's, in which HOST and PORT are the address.
	config string
	// use has the address called, and returns what is told of that; nil = the agent assistant is called.
	use func(t *testing.T, h *testHouse, app, host, port string) string
	// recalls says that it is used when a caller of whom something is remembered comes again; the log tells of it.
	recalls bool
	// slow says that it is tried again for seconds: it is held to a few of the addresses.
	slow bool
}

// hosts are the addresses that w is held to.
func (w way) hosts() []string {
	if w.slow {
		return []string{"127.0.0.1", "169.254.169.254", ownAddress}
	}
	return forbidden
}

// later has the address called once more where that takes a further conversation.
func (w way) later(t *testing.T, h *testHouse, app string) bool {
	if w.recalls {
		asked(t, h, app, "", "")
	}
	return w.recalls
}

// ways are all that an app's configuration or its callers can have called. What the operator alone names is not among them.
var ways = []way{
	{name: "model openai", config: vendor("openai")},
	{name: "model anthropic", config: vendor("anthropic")},
	{name: "model gemini", config: vendor("gemini")},
	{name: "model ollama", config: vendor("ollama")},
	{name: "tool http_request", config: calls("http_request")},
	{name: "tool web_fetch", config: calls("web_fetch")},
	{name: "MCP", config: `{llms: {m: {provider: scripted}}, tools: {shop: {url: "http://HOST:PORT/mcp"}}, agents: {assistant: {llm: m, tools: [shop]}}}`},
	{name: "MCP over SSE", config: `{llms: {m: {provider: scripted}}, tools: {shop: {url: "http://HOST:PORT/sse"}}, agents: {assistant: {llm: m, tools: [shop]}}}`},
	{name: "remote agent", config: `{llms: {m: {provider: scripted}}, agents: {assistant: {type: remote, url: "http://HOST:PORT/agent"}}}`},
	{name: "database", config: `{llms: {m: {provider: scripted}}, databases: {d: {driver: postgres, host: "BARE", port: PORT, database: x, username: u}}, storage: {sessions: {database: d}}, agents: {assistant: {llm: m}}}`, slow: true},
	{name: "embedder openai", config: embeds("openai"), recalls: true},
	{name: "embedder ollama", config: embeds("ollama"), recalls: true},
	{name: "embedder cohere", config: embeds("cohere"), recalls: true},
	{name: "push notification", config: scriptedApp, use: toldPushed},
	{name: "standing notification", config: `{llms: {m: {provider: scripted}}, agents: {assistant: {llm: m, notifications: [{id: all, url: "https://HOST:PORT/told", events: [task.completed]}]}}}`, use: toldStanding},
	{name: "callback", config: strings.Replace(calledBack("HOST:PORT"), "agents:\n", "agents:\n  assistant: {llm: m}\n", 1), use: calledBackAt},
	{name: "issuer's keys", config: scriptedApp, use: keysFetched},
}

const scriptedApp = `{llms: {m: {provider: scripted}}, agents: {assistant: {llm: m}}}`

func vendor(name string) string {
	return `{llms: {m: {provider: ` + name + `, model: x, api_key: k, base_url: "http://HOST:PORT"}}, agents: {assistant: {llm: m}}}`
}

func calls(handler string) string {
	return `{llms: {m: {provider: scripted, script: [{when: {tool_result: go}, then: [{say: "{{result}}"}]}, {then: [{call: {tool: go, arguments: {url: "http://HOST:PORT/x"}}}]}]}},
tools: {go: {type: function, handler: ` + handler + `}}, agents: {assistant: {llm: m, tools: [go]}}}`
}

func embeds(provider string) string {
	return `{llms: {m: {provider: scripted}}, embedders: {e: {provider: ` + provider + `, model: x, api_key: k, base_url: "http://HOST:PORT"}},
storage: {memory: {backend: vector, embedder: e}}, agents: {assistant: {llm: m}}}`
}

// asked calls the app's agent and returns the answer, and what is remembered of it.
func asked(t *testing.T, h *testHouse, app, _, _ string) string {
	t.Helper()
	_, body := h.ask(t, "POST", "/agents/assistant", h.token(t, app, "ana", nil), rpc("message:send", words("what do you remember")))
	return body
}

// toldOf waits until an address of a task is given up or reached, and returns what is told of it.
func (h *testHouse) toldOf(t *testing.T, token, task string) (why string) {
	t.Helper()
	within(t, 30*time.Second, "an address is given up or tried again", func() bool {
		at := h.notification(t, token, task)
		why = at.Error
		return at.Status == "dead" || at.Attempts > 0
	})
	return why
}

func toldPushed(t *testing.T, h *testHouse, app, host, port string) string {
	ana := h.token(t, app, "ana", nil)
	status, body := h.ask(t, "POST", "/a2a/assistant/message:send", ana, map[string]any{
		"message":       map[string]any{"messageId": "m", "role": "ROLE_USER", "parts": []any{map[string]any{"text": "hello"}}},
		"configuration": map[string]any{"taskPushNotificationConfig": map[string]any{"url": "https://" + host + ":" + port + "/told"}},
	})
	task := idIn(body)
	if status != http.StatusOK || task == "" {
		return body
	}
	return h.toldOf(t, ana, task)
}

func toldStanding(t *testing.T, h *testHouse, app, host, port string) string {
	task := idIn(asked(t, h, app, host, port))
	return h.toldOf(t, h.token(t, app, "otto", map[string]any{"roles": []string{"operator"}}), task)
}

func calledBackAt(t *testing.T, h *testHouse, app, host, port string) string {
	req := h.signedDelivery(t, app, "hello", "https://"+host+":"+port+"/told")
	status, body := h.do(t, req)
	if status != http.StatusAccepted {
		return body
	}
	return h.toldOf(t, h.token(t, app, "otto", map[string]any{"roles": []string{"operator"}}), idIn(body))
}

// keysFetched has an app bring an issuer of its own, and fetches its keys as [house.wayTo] has them fetched.
func keysFetched(t *testing.T, h *testHouse, app, host, port string) string {
	at := "https://" + host + ":" + port + "/jwks"
	status, body := h.ask(t, "PUT", "/admin/apps/"+app, testSecret, map[string]any{"auth": map[string]any{"issuer": "https://login.example/" + app, "jwks_url": at, "audience": app}})
	if status == http.StatusOK && !strings.Contains(app, "granted") {
		t.Errorf("the keys at %s are taken for an issuer's: %s", at, body)
	}
	client := h.wayTo(strings.Contains(app, "granted"))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return body
	}
	resp, err := client.Do(req)
	if err != nil {
		return err.Error()
	}
	_ = resp.Body.Close()
	return resp.Status
}

// idIn returns the first id of a task in an answer, "" if there is none.
func idIn(answer string) string { return taskIDs.FindString(answer) }

var taskIDs = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}`)

// TestOutbound has an app call every forbidden address in every way there is: nothing is reached, and it is told that the address is
// not allowed. The same ways reach what the operator grants. It runs in a network of its own that has a public address.
func TestOutbound(t *testing.T) {
	t.Parallel()
	if os.Getenv("STOA_TEST_NETWORK") == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestOutbound$", "-test.timeout=20m", "-test.parallel=4", "-test.v")
		cmd.Env = append(os.Environ(), "STOA_TEST_NETWORK=own")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
		if os.Getuid() != 0 {
			cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
			cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
			cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
		}
		out, err := cmd.CombinedOutput()
		switch {
		case errors.Is(err, syscall.EPERM):
			t.Skip("ATTENTION: without a network namespace nobody saw which addresses an app reaches")
		case err != nil || !strings.Contains(string(out), "--- PASS: TestOutbound"):
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	openNetwork(t)
	granted, port := listenEverywhere(t)
	stray, elsewhere := listenEverywhere(t) // a port that no granted app knows, and so none of its retries
	var log syncBuffer
	h := openHouseOf(t, dbtest.SQLiteURL(t), slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})), "../../examples/notifications.yaml")
	try := func(t *testing.T, name string, w way, host string, grants ...string) (answer string) {
		t.Helper()
		config := strings.NewReplacer("HOST", host, "BARE", strings.Trim(host, "[]"), "PORT", port).Replace(w.config)
		status, body := h.ask(t, "POST", "/admin/apps", testSecret, map[string]any{"name": name, "config": config, "grants": grants})
		if status != http.StatusCreated {
			return body
		}
		if w.use == nil {
			w.use = asked
		}
		return w.use(t, h, name, host, port)
	}
	app := func(i int, host string) string { return fmt.Sprintf("granted-%d-%d", i, len(host)) }
	for i, w := range ways {
		t.Run("granted/"+w.name, func(t *testing.T) {
			for _, host := range []string{"127.0.0.1", ownAddress} {
				before := granted.Load()
				answer := try(t, app(i, host), w, host, "private_network")
				within(t, 20*time.Second, fmt.Sprintf("%s is reached with the grant (%.300s)", host, answer), func() bool {
					return granted.Load() > before || w.later(t, h, app(i, host)) && granted.Load() > before
				})
			}
		})
	}
	port = elsewhere
	t.Run("refused", func(t *testing.T) {
		for i, w := range ways {
			for j, host := range w.hosts() {
				t.Run(w.name+" "+host, func(t *testing.T) {
					t.Parallel() // some of them are tried again for seconds before they are told
					app := fmt.Sprintf("app-%d-%d", i, j)
					answer := try(t, app, w, host)
					told := func(text string) bool {
						return strings.Contains(text, "not allowed") || strings.Contains(text, "private network") || strings.Contains(text, "never called") ||
							strings.Contains(text, "INVALID_ARGUMENT") || strings.Contains(text, "can be neither read nor kept")
					}
					if !w.recalls {
						if !told(answer) {
							t.Errorf("it is told %.500s", answer)
						}
						return
					}
					within(t, 30*time.Second, "it is refused", func() bool {
						w.later(t, h, app)
						for line := range strings.SplitSeq(log.String(), "\n") {
							if strings.Contains(line, "app="+app+" ") && told(line) {
								return true
							}
						}
						return false
					})
				})
			}
		}
	})
	if n := stray.Load(); n != 0 {
		t.Errorf("%d connections were made to forbidden addresses", n)
	}
}

// openNetwork brings the loopback interface of this test's network up and gives it [ownAddress].
func openNetwork(t *testing.T) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	up, err := unix.NewIfreq("lo")
	if err != nil {
		t.Fatal(err)
	}
	up.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	own, err := unix.NewIfreq("lo:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := own.SetInet4Addr(net.ParseIP(ownAddress).To4()); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, up), unix.IoctlIfreq(fd, unix.SIOCSIFADDR, own)); err != nil {
		t.Fatal(err)
	}
}

// listenEverywhere counts the connections to a port of every address of the network, which it refuses what they ask for.
func listenEverywhere(t *testing.T) (reached *atomic.Int64, port string) {
	t.Helper()
	l, err := net.Listen("tcp", "[::]:0")
	if err != nil {
		t.Fatal(err)
	}
	reached = &atomic.Int64{}
	var calls sync.WaitGroup
	calls.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			reached.Add(1)
			calls.Go(func() {
				_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
				_, _ = conn.Read(make([]byte, 4096))
				_, _ = io.WriteString(conn, "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
				_ = conn.Close()
			})
		}
	})
	t.Cleanup(func() { _ = l.Close(); calls.Wait() })
	_, port, _ = net.SplitHostPort(l.Addr().String())
	return reached, port
}
