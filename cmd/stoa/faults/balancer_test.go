package faults_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	pb10 "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"github.com/coder/websocket"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"

	"stoa/cmd/stoa/stoatest"
)

// balancerHosts are the addresses of the processes behind a balancer, which have the same ports as those of two machines.
var balancerHosts = []string{"127.0.0.11", "127.0.0.12"}

// balancerKind is a balancer whose configuration is in deploy/balancer.
type balancerKind struct {
	program, file string
	// validate and start are the arguments that check a configuration and start the balancer with it.
	validate, start []string
	// replace changes the configuration for a test without privileges: the listener's port is PORT, a folder DIR.
	replace []string
	// drain is how a process is taken out before it is restarted; nil means that the balancer finds out by itself.
	drain func(t testing.TB, b *testedBalancer, host string, out bool)
}

var balancerKinds = map[string]balancerKind{
	"haproxy": {
		program: "haproxy", file: "haproxy.cfg", validate: []string{"-c", "-f", "FILE"}, start: []string{"-db", "-f", "FILE"},
		replace: []string{"maxconn 20000", "maxconn 2000", "bind :443 ", "bind 127.0.0.1:PORT ", "/etc/stoa/tls.pem", "DIR/tls.pem"},
	},
	"caddy": {
		program: "caddy", file: "Caddyfile", validate: []string{"validate", "--adapter", "caddyfile", "--config", "FILE"},
		start: []string{"run", "--adapter", "caddyfile", "--config", "FILE"},
		replace: []string{
			"agents.example.com {", "https://127.0.0.1:PORT {", "/etc/stoa/tls", "DIR/tls", "health_port 8080", "health_port HTTPPORT",
			"admin off", "admin off\n\tauto_https disable_redirects\n\tskip_install_trust\n\tstorage file_system DIR/caddy",
		},
	},
	"nginx": {
		program: "nginx", file: "nginx.conf", validate: []string{"-t", "-e", "stderr", "-p", "DIR", "-c", "FILE"},
		start: []string{"-e", "stderr", "-p", "DIR", "-c", "FILE", "-g", "daemon off;"},
		replace: []string{
			"listen 443 ", "listen 127.0.0.1:PORT ", "/etc/stoa/tls", "DIR/tls", "worker_processes auto;", "worker_processes 1;\npid DIR/pid;", "worker_rlimit_nofile 65536;\n", "",
			"worker_connections 16384", "worker_connections 512", "keepalive_time 30s", "keepalive_time 2s",
			"http {\n", "http {\n  access_log off;\n  client_body_temp_path DIR/body;\n  proxy_temp_path DIR/proxy;\n  fastcgi_temp_path DIR/fcgi;\n  uwsgi_temp_path DIR/uwsgi;\n  scgi_temp_path DIR/scgi;\n",
		},
		drain: drainNginx,
	},
}

// testedBalancer is a balancer at work.
type testedBalancer struct {
	*externalService
	kind balancerKind
	file string // its configuration
	pool *x509.CertPool
}

// drainNginx marks a process "down" in the configuration, or no longer, and lets nginx read it again, as
// docs/operations/balancers.md describes.
func drainNginx(t testing.TB, b *testedBalancer, host string, out bool) {
	t.Helper()
	text, err := os.ReadFile(b.file)
	if err != nil {
		t.Fatal(err)
	}
	old, want := "fail_timeout=1s;", "fail_timeout=1s down;"
	if !out {
		old, want = want, old
	}
	changed := regexp.MustCompile(`(server `+regexp.QuoteMeta(host)+`:\d+ max_fails=1 )`+regexp.QuoteMeta(old)).ReplaceAll(text, []byte("${1}"+want))
	if bytes.Equal(changed, text) {
		t.Fatalf("%s has no server %s to change", b.file, host)
	}
	if err := os.WriteFile(b.file, changed, 0o600); err != nil {
		t.Fatal(err)
	}
	before := b.listWorkers()
	if err := b.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	// The old workers end when their last request does.
	for range 3000 {
		now := b.listWorkers()
		if len(now) > 0 && !slices.ContainsFunc(now, func(pid string) bool { return slices.Contains(before, pid) }) {
			return
		}
		sleepContext(context.Background(), 10*time.Millisecond)
	}
	t.Fatal("nginx did not read its configuration again, or its old workers did not end")
}

// listWorkers returns the ids of the balancer's own processes.
func (b *testedBalancer) listWorkers() []string {
	raw, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", b.cmd.Process.Pid, b.cmd.Process.Pid))
	return strings.Fields(string(raw))
}

// startTestedBalancer starts a balancer with its configuration of deploy/balancer in front of the processes at hosts, two
// or more.
func startTestedBalancer(t *testing.T, kind balancerKind, hosts []string, httpPort, grpcPort string) (*testedBalancer, string) {
	t.Helper()
	path, err := exec.LookPath(kind.program)
	if err != nil {
		fmt.Fprintf(os.Stdout, "    ATTENTION: %s: NOT TESTED: %s (Debian package of the same name) is not on this machine\n", t.Name(), kind.program)
		skipMissing(t, kind.program)
	}
	b := &testedBalancer{kind: kind}
	dir, port := t.TempDir(), itoa(freePort(t))
	// The workers of a balancer may have another user.
	for _, folder := range []string{filepath.Dir(dir), dir} {
		if err := os.Chmod(folder, 0o755); err != nil { //nolint:gosec // its secrets are files with a mode of their own
			t.Fatal(err)
		}
	}
	b.pool = writeBalancerCertificate(t, dir)
	raw, err := os.ReadFile(filepath.Join("../../../deploy/balancer", kind.file))
	if err != nil {
		t.Fatal(err)
	}
	text := addProcesses(string(raw), len(hosts))
	for i, host := range hosts {
		name := "stoa-" + itoa(i+1)
		text = strings.ReplaceAll(text, name+":8080", host+":"+httpPort)
		text = strings.ReplaceAll(text, name+":50051", host+":"+grpcPort)
	}
	text = strings.ReplaceAll(text, " port 8080 ", " port "+httpPort+" ")
	for i := 0; i < len(kind.replace); i += 2 {
		if !strings.Contains(text, kind.replace[i]) {
			t.Fatalf("%s has no %q", kind.file, kind.replace[i])
		}
		text = strings.ReplaceAll(text, kind.replace[i], kind.replace[i+1])
	}
	values := strings.NewReplacer("HTTPPORT", httpPort, "PORT", port, "DIR", dir)
	b.file = filepath.Join(dir, kind.file)
	if err := os.WriteFile(b.file, []byte(values.Replace(text)), 0o600); err != nil {
		t.Fatal(err)
	}
	values = strings.NewReplacer("FILE", b.file, "DIR", dir)
	command := func(args []string) *exec.Cmd {
		var all []string
		for _, a := range args {
			all = append(all, values.Replace(a))
		}
		cmd := exec.Command(path, all...)
		cmd.Env = append(os.Environ(), "HOME="+dir)
		return cmd
	}
	if written, err := command(kind.validate).CombinedOutput(); err != nil {
		t.Fatalf("%s refuses %s: %v\n%s", kind.program, kind.file, err, written)
	}
	addr := net.JoinHostPort("127.0.0.1", port)
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if written, err := os.ReadFile(log.Name()); t.Failed() && err == nil {
			t.Logf("%s wrote:\n%s", kind.program, lastBytes(string(written), 4000))
		}
		_ = log.Close()
	})
	b.externalService = startService(t, addr, func() *exec.Cmd {
		cmd := command(kind.start)
		cmd.Stdout, cmd.Stderr = log, log
		// Its workers end with it.
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		return cmd
	})
	t.Cleanup(func() { _ = syscall.Kill(-b.cmd.Process.Pid, syscall.SIGKILL) })
	return b, addr
}

// secondProcess matches the second process in a balancer's configuration: its line, or its address in a list of them.
var secondProcess = regexp.MustCompile(`(?m)^ *server stoa-2.*\n| \S*stoa-2:\d+`)

// addProcesses returns the configuration of a balancer for n processes, of which the file has two.
func addProcesses(text string, n int) string {
	return secondProcess.ReplaceAllStringFunc(text, func(second string) string {
		all := second
		for i := 3; i <= n; i++ {
			all += strings.ReplaceAll(second, "stoa-2", "stoa-"+itoa(i))
		}
		return all
	})
}

// writeBalancerCertificate writes a certificate for 127.0.0.1 as tls.crt, tls.key and both as tls.pem.
func writeBalancerCertificate(t *testing.T, dir string) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	private := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
	for name, content := range map[string][]byte{"tls.crt": cert, "tls.key": private, "tls.pem": append(bytes.Clone(cert), private...)} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(cert)
	return pool
}

// otherAddress makes connections from 127.0.0.2, another address than the balancer's.
var otherAddress = &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}, Timeout: 5 * time.Second}

// newBalancerTransport returns a transport whose connections come from otherAddress.
func newBalancerTransport(t *testing.T, pool *x509.CertPool) *http.Transport {
	transport := &http.Transport{
		DialContext: otherAddress.DialContext, TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 100,
	}
	t.Cleanup(transport.CloseIdleConnections)
	return transport
}

// TestBalancers runs the configurations of deploy/balancer in front of two processes: a stream, a WebSocket, a call over
// gRPC, a large body, the address of the client, and rolling restarts under load without a failed request.
func TestBalancers(t *testing.T) {
	t.Parallel()
	for name, kind := range balancerKinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testBalancer(t, kind)
		})
	}
}

func testBalancer(t *testing.T, kind balancerKind) {
	grpcPort := itoa(freePort(t))
	c := startCluster(t, clusterOptions{
		nodes: 2, hosts: balancerHosts, noProxy: true, args: []string{"--grpc-port", grpcPort, "--trusted-proxies", "127.0.0.1/32", "--log-format", "json"},
	})
	_, httpPort, err := net.SplitHostPort(c.nodes[0].baseURL[len("http://"):])
	c.requireNoError(err)
	b, addr := startTestedBalancer(t, kind, balancerHosts, httpPort, grpcPort)
	transport := newBalancerTransport(t, b.pool)
	front := &client{baseURL: "https://" + addr, token: c.token, http: &http.Client{Transport: transport}}
	c.waitWithin(setupTimeout, "the balancer finds the processes", func() bool {
		_, err := front.sendMessage(t.Context(), message{text: "hi"})
		return err == nil
	})

	checkStreamFlows(c, front)
	checkSocket(c, front, b.pool)
	checkGRPC(c, addr, b.pool)
	checkLargeBodies(c, front)
	checkImport(c, addr, b.pool)
	checkClientAddress(c, front)
	checkSlowProcesses(c, front)

	r := newRand(t)
	l := &loadGenerator{cluster: c, pickClient: func(*mathrand.Rand) *client { return front }, maxAttempts: 3, kinds: append(messageKinds, "slow %s")}
	l.startClients(r, 4)
	for range readCount(t, "STOA_FAULTS_BALANCER_ROLLS", 5, 1) {
		for i, n := range c.nodes {
			b.replaceProcess(c, n, balancerHosts[i], n.program)
			// The balancer asks twice a second.
			sleepContext(context.Background(), 1500*time.Millisecond)
		}
	}
	l.stopClients()
	failed := l.listFailures()
	reportf(t, "%s: rolling restarts of two processes: %d messages, %d requests failed", kind.program, l.count, len(failed))
	if l.count < 10 {
		t.Errorf("only %d messages were sent", l.count)
	}
	for _, err := range failed[:min(len(failed), 20)] {
		t.Errorf("a request failed: %v", err)
	}
	c.checkHistory(l.history, c.nodes[0], time.Minute)
}

// replaceProcess takes a process out of the balancer where the balancer does not find that out itself, stops it, starts a
// program in its place and puts it back.
func (b *testedBalancer) replaceProcess(c *cluster, n *node, host, program string) {
	c.Helper()
	if b.kind.drain != nil {
		b.kind.drain(c, b, host, true)
	}
	n.replaceProgram(program)
	if b.kind.drain != nil {
		b.kind.drain(c, b, host, false)
	}
}

// checkStreamFlows requires that the first part of an answer arrives while the model still pauses.
func checkStreamFlows(c *cluster, front *client) {
	c.Helper()
	var first, last time.Time
	err := front.streamEvents(c.Context(), "/agents/assistant", rpcCall("message:stream", message{text: "slow x"}.rpcParams()), func(event) bool {
		last = time.Now()
		if first.IsZero() {
			first = last
		}
		return true
	})
	if err != nil || last.Sub(first) < time.Second {
		c.Errorf("the events of a stream arrived within %v, want a pause of 1.5 s between them (%v)", last.Sub(first), err)
	}
}

// checkSocket has a conversation over a WebSocket.
func checkSocket(c *cluster, front *client, pool *x509.CertPool) {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), time.Minute)
	defer cancel()
	transport := newBalancerTransport(c.T, pool)
	transport.ForceAttemptHTTP2 = false
	conn, resp, err := websocket.Dial(ctx, front.baseURL+"/v1/agents/assistant/stream", &websocket.DialOptions{
		HTTPClient: &http.Client{Transport: transport}, HTTPHeader: http.Header{"Authorization": {"Bearer " + front.token}},
	})
	if err != nil {
		c.Fatalf("no WebSocket: %v (%+v)", err, resp)
	}
	defer conn.CloseNow()
	c.requireNoError(conn.Write(ctx, websocket.MessageText, []byte(`{"message":{"messageId":"w1","role":"user","parts":[{"text":"hello socket"}]}}`)))
	for {
		_, frame, err := conn.Read(ctx)
		c.requireNoError(err)
		if bytes.Contains(frame, []byte("hello socket")) {
			return
		}
	}
}

// checkGRPC sends a message over gRPC.
func checkGRPC(c *cluster, addr string, pool *x509.CertPool) {
	c.Helper()
	dial := func(ctx context.Context, addr string) (net.Conn, error) {
		return otherAddress.DialContext(ctx, "tcp", addr)
	}
	conn, err := grpc.NewClient(addr, grpc.WithContextDialer(dial), grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12})))
	c.requireNoError(err)
	defer conn.Close()
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(c.Context(), "authorization", "Bearer "+c.token, "x-forwarded-for", "203.0.113.9"), 20*time.Second)
	defer cancel()
	request := &pb10.SendMessageRequest{Tenant: "assistant", Message: &pb10.Message{
		MessageId: "grpc-1", Role: pb10.Role_ROLE_USER, Parts: []*pb10.Part{{Content: &pb10.Part_Text{Text: "hello grpc"}}},
	}}
	answer, err := pb10.NewA2AServiceClient(conn).SendMessage(ctx, request)
	c.requireNoError(err)
	if !strings.Contains(answer.String(), "hello grpc") {
		c.Errorf("the answer over gRPC is %v", answer)
	}
	requireLoggedClient(c, `"route":"/lf.a2a.v1.A2AService/SendMessage"`)
}

// checkLargeBodies sends a message as large as Stoa permits, and a larger one, which Stoa itself must refuse.
func checkLargeBodies(c *cluster, front *client) {
	c.Helper()
	for _, tt := range []struct{ bytes, status int }{{28<<20 - 4096, http.StatusOK}, {29 << 20, http.StatusRequestEntityTooLarge}} {
		answer, err := front.doRequest(c.Context(), http.MethodPost, "/agents/assistant", largeCall(tt.bytes))
		if err != nil || answer.status != tt.status || !json.Valid(answer.body) {
			c.Errorf("a body of %d bytes is answered %d, want %d in JSON: %.300s (%v)", tt.bytes, answer.status, tt.status, answer.body, err)
		}
	}
}

// checkImport sends the file of an app with large messages through the balancer, larger than the bodies that other requests
// may have. Stoa reads and checks all of it before it answers that the app is here already.
func checkImport(c *cluster, addr string, pool *x509.CertPool) {
	c.Helper()
	admin := &client{baseURL: "https://" + addr, token: stoatest.AdminSecret, http: &http.Client{Transport: newBalancerTransport(c.T, pool)}}
	require := func(method, path string, body any, status int, headers ...string) []byte {
		c.Helper()
		answer, err := admin.doRequest(c.Context(), method, path, body, headers...)
		if err != nil || answer.status != status {
			c.Fatalf("%s %s is answered %d, want %d: %.300s (%v)", method, path, answer.status, status, answer.body, err)
		}
		return answer.body
	}
	const config = "llms: {default: {provider: scripted}}\nagents: {assistant: {input_modes: [text/plain, application/json]}}\n"
	require(http.MethodPost, "/admin/apps", map[string]any{"name": "large", "config": config}, http.StatusCreated)
	var token struct {
		Token string `json:"access_token"`
	}
	c.requireNoError(json.Unmarshal(require(http.MethodPost, "/admin/apps/large/tokens", map[string]any{"sub": "ana", "roles": []string{"admin"}}, http.StatusCreated), &token))
	tenant := &client{baseURL: admin.baseURL, token: token.Token, http: admin.http}
	for range 2 {
		answer, err := tenant.doRequest(c.Context(), http.MethodPost, "/agents/assistant", largeCall(25<<20))
		if err != nil || answer.status != http.StatusOK || !bytes.Contains(answer.body, []byte(`"completed"`)) {
			c.Fatalf("a large message is answered %d: %.300s (%v)", answer.status, answer.body, err)
		}
	}
	require(http.MethodPost, "/admin/apps/large:suspend", map[string]any{"reason": "moves"}, http.StatusOK)
	passphrase := []string{"X-Passphrase", base64.StdEncoding.EncodeToString([]byte("a passphrase of the test"))}
	file, err := os.Create(filepath.Join(c.TempDir(), "large.stoa"))
	c.requireNoError(err)
	defer func() { _ = file.Close() }()
	resp, err := admin.openRequest(c.Context(), http.MethodGet, "/admin/apps/large/export", nil, passphrase...)
	c.requireNoError(err)
	size, err := io.Copy(file, resp.Body)
	_ = resp.Body.Close()
	if err != nil || resp.StatusCode != http.StatusOK || size <= 64<<20 {
		c.Fatalf("the export is answered %d and has %d bytes, want more than 64 MiB (%v)", resp.StatusCode, size, err)
	}
	_, err = file.Seek(0, io.SeekStart)
	c.requireNoError(err)
	req, err := http.NewRequestWithContext(c.Context(), http.MethodPost, admin.baseURL+"/admin/apps:import", file)
	c.requireNoError(err)
	req.ContentLength = size
	req.Header.Set("Authorization", "Bearer "+admin.token)
	req.Header.Set(passphrase[0], passphrase[1])
	resp, err = admin.http.Do(req)
	if err != nil {
		c.Fatalf("the import of %d bytes: %v", size, err)
	}
	defer resp.Body.Close()
	if text, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusConflict || !bytes.Contains(text, []byte("large")) {
		c.Errorf("the import is answered %d, want 409 because the app exists: %.300s", resp.StatusCode, text)
	}
}

// largeCall returns a call whose message has a data part of n bytes.
func largeCall(n int) json.RawMessage {
	const data = `{"type":"data","data":{"v":"PADDING"}}`
	call, err := json.Marshal(rpcCall("message:send", map[string]any{
		"message": map[string]any{"role": "user", "parts": []any{map[string]string{"type": "text", "text": "hello large"}, json.RawMessage(data)}},
	}))
	if err != nil {
		panic(err)
	}
	return bytes.Replace(call, []byte("PADDING"), bytes.Repeat([]byte("a"), n), 1)
}

// checkClientAddress requires that the log has the client's own address, whatever it claims to be.
func checkClientAddress(c *cluster, front *client) {
	c.Helper()
	answer, err := front.doRequest(c.Context(), http.MethodGet, "/tasks", nil, "X-Forwarded-For", "203.0.113.9", "Forwarded", "for=203.0.113.9", "X-Real-Ip", "203.0.113.9")
	c.requireNoError(err)
	id := answer.header.Get("X-Request-Id")
	if answer.status != http.StatusOK || id == "" {
		c.Fatalf("a list of tasks is answered %d with the id %q", answer.status, id)
	}
	requireLoggedClient(c, id)
}

// checkSlowProcesses sends messages while all processes answer nothing for longer than the time between two checks: the
// balancer waits for them.
func checkSlowProcesses(c *cluster, front *client) {
	c.Helper()
	for _, n := range c.nodes {
		n.freezeProcess()
	}
	results := make(chan error)
	for range 8 {
		go func() {
			sleepContext(c.Context(), time.Duration(mathrand.IntN(1200))*time.Millisecond)
			_, err := front.sendMessage(c.Context(), message{text: "hi"})
			results <- err
		}()
	}
	sleepContext(c.Context(), 1500*time.Millisecond)
	for _, n := range c.nodes {
		n.sendSignal(syscall.SIGCONT)
	}
	for range 8 {
		if err := <-results; err != nil {
			c.Errorf("a message to processes that answer nothing for 1.5 s: %v", err)
		}
	}
}

// requireLoggedClient requires that the request whose line in the log has a text has the address otherAddress.
func requireLoggedClient(c *cluster, text string) {
	c.Helper()
	var line string
	c.waitWithin(setupTimeout, "the request is logged", func() bool {
		for _, n := range c.nodes {
			for one := range strings.Lines(n.Output()) {
				if strings.Contains(one, text) && strings.Contains(one, `"msg":"request"`) {
					line = one
					return true
				}
			}
		}
		return false
	})
	var logged struct{ Client string }
	c.requireNoError(json.NewDecoder(io.LimitReader(strings.NewReader(line), 1<<16)).Decode(&logged))
	if logged.Client != "127.0.0.2" {
		c.Errorf("the log has the client %q, want 127.0.0.2: %s", logged.Client, line)
	}
}
