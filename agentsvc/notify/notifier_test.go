package notify_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"stoa/agentsvc"
	"stoa/agentsvc/egress"
	"stoa/agentsvc/notify"
	"stoa/agentsvc/store"
	"stoa/agentsvc/store/receiver"
	"stoa/tenancy"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
	"stoa/tenancy/keyring"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// privateEgress reaches this machine.
var privateEgress = notify.Egress{AllowPrivate: true}

var ana = agentsvc.Owner{Issuer: "stoa", Subject: "ana"}

// formats write the state of each status, one of them with the number of artifacts.
var formats = map[string]notify.Format{
	"each": {ShouldSend: isStatus, EncodeBody: func(_ agentsvc.Task, ev agentsvc.Event) ([]byte, error) {
		return json.Marshal(string(ev.Status.State))
	}},
	"whole": {ShouldSend: isStatus, IncludesTask: true, EncodeBody: func(t agentsvc.Task, _ agentsvc.Event) ([]byte, error) {
		return json.Marshal(string(t.Status.State) + " " + strconv.Itoa(len(t.Artifacts)))
	}},
}

func isStatus(ev agentsvc.Event) bool { return ev.Status != nil }

func newKeyring(t *testing.T, fill byte) *keyring.Keyring {
	t.Helper()
	keys, err := keyring.New(bytes.Repeat([]byte{fill}, 32))
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// newNotifier returns a notifier that reaches this machine, unless the options say otherwise.
func newNotifier(t *testing.T, tenant db.ID, o notify.Options) *notify.Notifier {
	t.Helper()
	for _, r := range []*notify.Egress{&o.CallerEgress, &o.AppEgress} {
		r.Client = egress.New(egress.Options{PrivateNetwork: r.AllowPrivate})
		t.Cleanup(r.Client.Close)
	}
	return notify.NewNotifier(tenant, newKeyring(t, 1), o)
}

// startDispatchers runs dispatchers until the end of the test. Tenants without a notifier are unavailable.
func startDispatchers(t *testing.T, d *db.DB, notifiers map[db.ID]*notify.Notifier, o notify.DispatcherOptions) {
	t.Helper()
	o.Formats, o.PollInterval = formats, 20*time.Millisecond
	o.Notifier = func(_ context.Context, tenant db.ID) (*notify.Notifier, func(), error) {
		if d := notifiers[tenant]; d != nil {
			return d, func() {}, nil
		}
		return nil, nil, tenancy.ErrSuspended
	}
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for range 2 { // as in two processes
		all.Go(func() {
			if err := notify.NewDispatcher(d, o).Run(ctx); !errors.Is(err, context.Canceled) {
				t.Errorf("a dispatcher ended: %v", err)
			}
		})
	}
	t.Cleanup(func() { cancel(); all.Wait() })
}

// acceptTask creates a task with a receiver.
func acceptTask(t *testing.T, d *db.DB, tenant db.ID, r receiver.Receiver) store.Run {
	t.Helper()
	return acceptTaskWith(t, d, tenant, &r)
}

// acceptTaskWith creates a task with a receiver, unless that is nil, and with standing receivers of its agent.
func acceptTaskWith(t *testing.T, d *db.DB, tenant db.ID, r *receiver.Receiver, notifications ...string) store.Run {
	t.Helper()
	run := store.Run{
		Tenant: tenant, Task: agentsvc.TaskID(agentsvc.NewID()), Turn: 1, Agent: "a", Context: "c", Owner: ana, Revision: 1,
		FirstSeq: 1, IsNewContext: true, Attempts: 1,
		Message: agentsvc.Message{ID: "m", Role: agentsvc.RoleUser, Parts: []agentsvc.Part{agentsvc.TextPart("hello")}},
		Lease:   store.Lease{Worker: "w", Epoch: 1, Seq: 2},
	}
	if err := store.New(d, tenant).Tasks.Create(t.Context(), store.NewTurn{Run: run, Events: sequenceEvents(run.Task, 1, statusEvent(agentsvc.Submitted), statusEvent(agentsvc.Working)), Receiver: r, Notifications: notifications}); err != nil {
		t.Fatal(err)
	}
	return run
}

// completeTask writes an artifact of the task and completes it.
func completeTask(t *testing.T, d *db.DB, run *store.Run) {
	t.Helper()
	rec := store.Record{EndState: store.Completed, Events: sequenceEvents(run.Task, run.Seq+1,
		agentsvc.Event{Artifact: &agentsvc.ArtifactUpdate{Artifact: agentsvc.Artifact{ID: "x", Parts: []agentsvc.Part{agentsvc.TextPart("x")}}}},
		statusEvent(agentsvc.Completed))}
	if err := store.New(d, run.Tenant).Runs.WriteRecord(t.Context(), run, rec); err != nil {
		t.Fatal(err)
	}
}

func statusEvent(s agentsvc.State) agentsvc.Event {
	return agentsvc.Event{Status: &agentsvc.Status{State: s}}
}

func sequenceEvents(id agentsvc.TaskID, seq int64, evs ...agentsvc.Event) []agentsvc.Event {
	for i := range evs {
		evs[i].Task, evs[i].Seq, evs[i].At = id, seq+int64(i), time.Now().UTC().Truncate(time.Microsecond)
	}
	return evs
}

// receivedRequest is a request that a receiver has received.
type receivedRequest struct {
	header http.Header
	body   string
}

// startReceiver starts a receiver that answers the nth request, counted from 1, with the status respond(n), and records
// the requests.
func startReceiver(t *testing.T, respond func(n int) int) (url string, all chan receivedRequest) {
	t.Helper()
	all = make(chan receivedRequest, 100)
	var mu sync.Mutex
	n := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		n++
		w.WriteHeader(respond(n))
		all <- receivedRequest{r.Header.Clone(), string(body)}
	}))
	t.Cleanup(srv.Close)
	return srv.URL, all
}

func respondNoContent(int) int { return http.StatusNoContent }

// nextRequest waits for the receiver's next request.
func nextRequest(t *testing.T, all chan receivedRequest) receivedRequest {
	t.Helper()
	select {
	case h := <-all:
		return h
	case <-time.After(time.Minute):
		t.Fatal("nothing comes")
		return receivedRequest{}
	}
}

// nextBodies waits for n requests and returns their bodies.
func nextBodies(t *testing.T, all chan receivedRequest, n int) (out []string) {
	t.Helper()
	for range n {
		out = append(out, nextRequest(t, all).body)
	}
	return out
}

// waitForState waits until a receiver of the task is in a state.
func waitForState(t *testing.T, d *db.DB, run store.Run, state receiver.State) receiver.Receiver {
	t.Helper()
	var got receiver.Receiver
	dbtest.WaitUntil(t, "a receiver that is "+string(state), func() bool {
		list, err := store.New(d, run.Tenant).Receivers.List(t.Context(), run.Task)
		if err != nil || len(list) != 1 {
			t.Fatalf("%+v, %v", list, err)
		}
		got = list[0]
		return got.State == state
	})
	return got
}

// TestAddress checks that a sealed address can be opened for its owner and app only, and that invalid addresses are
// refused.
func TestAddress(t *testing.T) {
	t.Parallel()
	d := newNotifier(t, "acme", notify.Options{})
	a := notify.Address{URL: "https://example.com/told?key=secret", Token: "token", Scheme: "bEARER", Credentials: "credentials"}
	r, err := d.NewReceiver(ana, "r", "each", a)
	if err != nil {
		t.Fatal(err)
	}
	a.Scheme = "Bearer"
	if got, err := d.OpenAddress(ana, r); err != nil || got != a {
		t.Errorf("%+v, %v", got, err)
	}
	for _, word := range []string{"secret", "token", "credentials"} {
		if strings.Contains(r.Value, word) {
			t.Errorf("%s is kept as it is", word)
		}
	}
	for name, err := range map[string]error{
		"another owner": secondError(d.OpenAddress(agentsvc.Owner{Issuer: "stoa", Subject: "eve"}, r)),
		"another app":   secondError(newNotifier(t, "globex", notify.Options{}).OpenAddress(ana, r)),
	} {
		if err == nil {
			t.Errorf("%s opens it", name)
		}
	}
	inside := newNotifier(t, "acme", notify.Options{CallerEgress: privateEgress})
	if _, err := inside.NewReceiver(ana, "", "each", notify.Address{URL: "http://localhost"}); err != nil {
		t.Errorf("http inside: %v", err)
	}
	for name, a := range map[string]notify.Address{
		"none": {}, "no host": {URL: "https:///x"}, "http": {URL: "http://example.com"}, "file": {URL: "file:///etc/passwd"},
		"name": {URL: "https://me@example.com"}, "long": {URL: "https://example.com/" + strings.Repeat("x", 2048)},
		"scheme": {URL: "https://example.com", Scheme: "Digest"}, "no scheme": {URL: "https://example.com", Credentials: "x"},
		"line break": {URL: "https://example.com", Token: "a\r\nHost: b"}, "credentials": {URL: "https://example.com", Scheme: "Basic", Credentials: "a\x00"},
	} {
		_, err := d.NewReceiver(ana, "", "each", a)
		if !errors.Is(err, agentsvc.CodeInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func secondError[T any](_ T, err error) error { return err }

func checkEqual(t *testing.T, want, got any) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}
