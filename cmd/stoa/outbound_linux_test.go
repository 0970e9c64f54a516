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

	"stoa/cmd/stoa/server"
	"stoa/tenancy/db/dbtest"
)

// publicAddress is a public address in the network of [TestOutbound].
const publicAddress = "93.184.215.14"

// forbiddenHosts are hosts that an app without the grant private_network may not reach, in every notation of an
// address.
var forbiddenHosts = []string{
	"127.0.0.1", "127.9.9.9", "localhost", "[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "2130706433", "0x7f000001", "0177.0.0.1", "127.1",
	"0.0.0.0", "[::]", "10.0.0.1", "172.16.0.1", "192.168.0.1", "100.64.0.1", "169.254.169.254", "[::ffff:169.254.169.254]", "168.63.129.16", "100.100.100.200",
	"[fd00::1]", "[fe80::1]", "[fd00:ec2::254]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", publicAddress, "[::ffff:" + publicAddress + "]",
}

// outboundCall is one way for an app to make the server call an address.
type outboundCall struct {
	name string
	// config is the app's configuration, in which HOST and PORT are replaced by the address.
	config string
	// trigger causes the call and returns what the app sees of it; nil = the agent assistant is called.
	trigger func(t *testing.T, h *testServer, app, host, port string) string
	// usesMemory means that the call happens when a user with memories calls again; its error is in the log.
	usesMemory bool
	// slow means that the call is retried for seconds; it is tested with a few of the addresses.
	slow bool
}

// testedHosts returns the addresses that w is tested with.
func (c outboundCall) testedHosts() []string {
	if c.slow {
		return []string{"127.0.0.1", "169.254.169.254", publicAddress}
	}
	return forbiddenHosts
}

// repeatCall causes the call again if that takes a further conversation.
func (c outboundCall) repeatCall(t *testing.T, h *testServer, app string) bool {
	if c.usesMemory {
		callAgent(t, h, app, "", "")
	}
	return c.usesMemory
}

// outboundCalls are all ways in which an app's configuration or its callers choose an address. Addresses that only
// the operator can set are not among them.
var outboundCalls = []outboundCall{
	{name: "model openai", config: newModelConfig("openai")},
	{name: "model anthropic", config: newModelConfig("anthropic")},
	{name: "model gemini", config: newModelConfig("gemini")},
	{name: "model ollama", config: newModelConfig("ollama")},
	{name: "tool http_request", config: newToolConfig("http_request")},
	{name: "tool web_fetch", config: newToolConfig("web_fetch")},
	{name: "MCP", config: `{llms: {m: {provider: scripted}}, tools: {shop: {url: "http://HOST:PORT/mcp"}}, agents: {assistant: {llm: m, tools: [shop]}}}`},
	{name: "MCP over SSE", config: `{llms: {m: {provider: scripted}}, tools: {shop: {url: "http://HOST:PORT/sse"}}, agents: {assistant: {llm: m, tools: [shop]}}}`},
	{name: "remote agent", config: `{llms: {m: {provider: scripted}}, agents: {assistant: {type: remote, url: "http://HOST:PORT/agent"}}}`},
	{name: "database", config: `{llms: {m: {provider: scripted}}, databases: {d: {driver: postgres, host: "BARE", port: PORT, database: x, username: u}}, storage: {sessions: {database: d}}, agents: {assistant: {llm: m}}}`, slow: true},
	{name: "embedder openai", config: newEmbedderConfig("openai"), usesMemory: true},
	{name: "embedder ollama", config: newEmbedderConfig("ollama"), usesMemory: true},
	{name: "embedder cohere", config: newEmbedderConfig("cohere"), usesMemory: true},
	{name: "push notification", config: scriptedApp, trigger: triggerPush},
	{name: "standing notification", config: `{llms: {m: {provider: scripted}}, agents: {assistant: {llm: m, notifications: [{id: all, url: "https://HOST:PORT/told", events: [task.completed]}]}}}`, trigger: triggerStanding},
	{name: "callback", config: strings.Replace(callbackApp("HOST:PORT"), "agents:\n", "agents:\n  assistant: {llm: m}\n", 1), trigger: triggerCallback},
	{name: "issuer's keys", config: scriptedApp, trigger: fetchIssuerKeys},
}

const scriptedApp = `{llms: {m: {provider: scripted}}, agents: {assistant: {llm: m}}}`

func newModelConfig(name string) string {
	return `{llms: {m: {provider: ` + name + `, model: x, api_key: k, base_url: "http://HOST:PORT"}}, agents: {assistant: {llm: m}}}`
}

func newToolConfig(handler string) string {
	return `{llms: {m: {provider: scripted, script: [{when: {tool_result: go}, then: [{say: "{{result}}"}]}, {then: [{call: {tool: go, arguments: {url: "http://HOST:PORT/x"}}}]}]}},
tools: {go: {type: function, handler: ` + handler + `}}, agents: {assistant: {llm: m, tools: [go]}}}`
}

func newEmbedderConfig(provider string) string {
	return `{llms: {m: {provider: scripted}}, embedders: {e: {provider: ` + provider + `, model: x, api_key: k, base_url: "http://HOST:PORT"}},
storage: {memory: {backend: vector, embedder: e}}, agents: {assistant: {llm: m}}}`
}

// callAgent calls the app's agent and returns the response and the remembered text.
func callAgent(t *testing.T, h *testServer, app, _, _ string) string {
	t.Helper()
	_, body := h.doRequest(t, "POST", "/agents/assistant", h.createToken(t, app, "ana", nil), newRPCCall("message:send", newTextMessage("what do you remember")))
	return body
}

// awaitDeliveryError waits until a receiver of a task has failed for good or was reached, and returns its error.
func (ts *testServer) awaitDeliveryError(t *testing.T, token, task string) (why string) {
	t.Helper()
	dbtest.WaitUntil(t, "an address is given up or tried again", func() bool {
		at := ts.getNotification(t, token, task)
		why = at.Error
		return at.Status == "dead" || at.Attempts > 0
	})
	return why
}

func triggerPush(t *testing.T, h *testServer, app, host, port string) string {
	ana := h.createToken(t, app, "ana", nil)
	status, body := h.doRequest(t, "POST", "/a2a/assistant/message:send", ana, map[string]any{
		"message":       map[string]any{"messageId": "m", "role": "ROLE_USER", "parts": []any{map[string]any{"text": "hello"}}},
		"configuration": map[string]any{"taskPushNotificationConfig": map[string]any{"url": "https://" + host + ":" + port + "/told"}},
	})
	task := findTaskID(body)
	if status != http.StatusOK || task == "" {
		return body
	}
	return h.awaitDeliveryError(t, ana, task)
}

func triggerStanding(t *testing.T, h *testServer, app, host, port string) string {
	task := findTaskID(callAgent(t, h, app, host, port))
	return h.awaitDeliveryError(t, h.createToken(t, app, "otto", map[string]any{"roles": []string{"operator"}}), task)
}

func triggerCallback(t *testing.T, h *testServer, app, host, port string) string {
	req := h.newSignedDelivery(t, app, "hello", "https://"+host+":"+port+"/told")
	status, body := h.sendRequest(t, req)
	if status != http.StatusAccepted {
		return body
	}
	return h.awaitDeliveryError(t, h.createToken(t, app, "otto", map[string]any{"roles": []string{"operator"}}), findTaskID(body))
}

// fetchIssuerKeys gives an app an issuer of its own and fetches its keys with the client of
// [server.IssuerHTTPClient].
func fetchIssuerKeys(t *testing.T, h *testServer, app, host, port string) string {
	at := "https://" + host + ":" + port + "/jwks"
	status, body := h.doRequest(t, "PATCH", "/admin/apps/"+app, testSecret, map[string]any{"auth": map[string]any{"issuer": "https://login.example/" + app, "jwks_url": at, "audience": app}})
	if status == http.StatusOK && !strings.Contains(app, "granted") {
		t.Errorf("the keys at %s are taken for an issuer's: %s", at, body)
	}
	client := server.IssuerHTTPClient(h.Dependencies, strings.Contains(app, "granted"))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
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

// findTaskID returns the first task id in a response, "" if there is none.
func findTaskID(answer string) string { return taskIDForm.FindString(answer) }

var taskIDForm = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}`)

// TestOutbound calls every forbidden address in every way: nothing is reached, and the error says that the address is
// not allowed. The same ways reach an address that the operator granted. It runs in a network namespace of its own
// that has a public address.
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
			dbtest.SkipMissing(t, "without a network namespace the addresses that an app reaches are not tested")
		case err != nil || !strings.Contains(string(out), "--- PASS: TestOutbound"):
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	configureNetwork(t)
	granted, port := listenEverywhere(t)
	// A port that no app with the grant knows, and so none of its retries.
	unexpected, elsewhere := listenEverywhere(t)
	var log syncBuffer
	h := openServerWith(t, dbtest.NewSQLiteURL(t), slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})), "../../examples/notifications.yaml")
	try := func(t *testing.T, name string, w outboundCall, host string, grants ...string) (answer string) {
		t.Helper()
		config := strings.NewReplacer("HOST", host, "BARE", strings.Trim(host, "[]"), "PORT", port).Replace(w.config)
		status, body := h.doRequest(t, "POST", "/admin/apps", testSecret, map[string]any{"name": name, "config": config, "grants": grants})
		if status != http.StatusCreated {
			return body
		}
		if w.trigger == nil {
			w.trigger = callAgent
		}
		return w.trigger(t, h, name, host, port)
	}
	app := func(i int, host string) string { return fmt.Sprintf("granted-%d-%d", i, len(host)) }
	for i, w := range outboundCalls {
		t.Run("granted/"+w.name, func(t *testing.T) {
			for _, host := range []string{"127.0.0.1", publicAddress} {
				before := granted.Load()
				answer := try(t, app(i, host), w, host, "private_network")
				dbtest.WaitUntil(t, fmt.Sprintf("%s is reached with the grant (%.300s)", host, answer), func() bool {
					return granted.Load() > before || w.repeatCall(t, h, app(i, host)) && granted.Load() > before
				})
			}
		})
	}
	port = elsewhere
	t.Run("refused", func(t *testing.T) {
		for i, w := range outboundCalls {
			for j, host := range w.testedHosts() {
				t.Run(w.name+" "+host, func(t *testing.T) {
					t.Parallel() // some calls are retried for seconds
					app := fmt.Sprintf("app-%d-%d", i, j)
					answer := try(t, app, w, host)
					reported := func(text string) bool {
						return strings.Contains(text, "not allowed") || strings.Contains(text, "private network") || strings.Contains(text, "never called") ||
							strings.Contains(text, "INVALID_ARGUMENT") || strings.Contains(text, "can be neither read nor kept")
					}
					if !w.usesMemory {
						if !reported(answer) {
							t.Errorf("it got %.500s", answer)
						}
						return
					}
					dbtest.WaitUntil(t, "it is refused", func() bool {
						w.repeatCall(t, h, app)
						for line := range strings.SplitSeq(log.String(), "\n") {
							if strings.Contains(line, "app="+app+" ") && reported(line) {
								return true
							}
						}
						return false
					})
				})
			}
		}
	})
	if n := unexpected.Load(); n != 0 {
		t.Errorf("%d connections were made to forbidden addresses", n)
	}
}

// configureNetwork enables the loopback interface of this test's network and gives it [publicAddress].
func configureNetwork(t *testing.T) {
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
	specific, err := unix.NewIfreq("lo:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := specific.SetInet4Addr(net.ParseIP(publicAddress).To4()); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, up), unix.IoctlIfreq(fd, unix.SIOCSIFADDR, specific)); err != nil {
		t.Fatal(err)
	}
}

// listenEverywhere counts the connections to a port of every address of the network. It refuses every request.
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
