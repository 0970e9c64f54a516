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
	"stoa/tenancy"
	"stoa/tenancy/db"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// near reaches this machine.
var near = notify.Reach{Inside: true}

var ana = agentsvc.Owner{Issuer: "stoa", Subject: "ana"}

// forms tell the state of each status, one of them with how many artifacts there were.
var forms = map[string]notify.Form{
	"each": {Tells: isStatus, Body: func(_ agentsvc.Task, ev agentsvc.Event) ([]byte, error) {
		return json.Marshal(string(ev.Status.State))
	}},
	"whole": {Tells: isStatus, Whole: true, Body: func(t agentsvc.Task, _ agentsvc.Event) ([]byte, error) {
		return json.Marshal(string(t.Status.State) + " " + strconv.Itoa(len(t.Artifacts)))
	}},
}

func isStatus(ev agentsvc.Event) bool { return ev.Status != nil }

func keyring(t *testing.T, fill byte) *tenancy.Keyring {
	t.Helper()
	keys, err := tenancy.NewKeyring(bytes.Repeat([]byte{fill}, 32))
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// desk returns one that reaches this machine, unless it is to stay outside.
func desk(t *testing.T, tenant db.ID, o notify.Options) *notify.Desk {
	t.Helper()
	for _, r := range []*notify.Reach{&o.Callers, &o.Own} {
		r.Client = egress.New(egress.Options{PrivateNetwork: r.Inside})
		t.Cleanup(r.Client.Close)
	}
	return notify.NewDesk(tenant, keyring(t, 1), o)
}

// run runs couriers until the test ends. Those of a tenant without a desk tell nothing.
func run(t *testing.T, d *db.DB, desks map[db.ID]*notify.Desk, o notify.CourierOptions) {
	t.Helper()
	o.Forms, o.Look = forms, 20*time.Millisecond
	o.Desk = func(_ context.Context, tenant db.ID) (*notify.Desk, func(), error) {
		if d := desks[tenant]; d != nil {
			return d, func() {}, nil
		}
		return nil, nil, tenancy.ErrSuspended
	}
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for range 2 { // as in two processes
		all.Go(func() {
			if err := notify.NewCourier(d, o).Run(ctx); !errors.Is(err, context.Canceled) {
				t.Errorf("a courier ended: %v", err)
			}
		})
	}
	t.Cleanup(func() { cancel(); all.Wait() })
}

// open opens a task with a receiver.
func open(t *testing.T, d *db.DB, tenant db.ID, r store.Receiver) store.Run {
	t.Helper()
	return openWith(t, d, tenant, &r)
}

// openWith opens a task with a receiver, if there is one, and with notifications of its agent's.
func openWith(t *testing.T, d *db.DB, tenant db.ID, r *store.Receiver, notifications ...string) store.Run {
	t.Helper()
	run := store.Run{
		Tenant: tenant, Task: agentsvc.TaskID(agentsvc.NewID()), Turn: 1, Agent: "a", Context: "c", Owner: ana, Revision: 1, Worker: "w", Epoch: 1, Seq: 2,
		FirstSeq: 1, Fresh: true, Attempts: 1, Receiver: r, Notifications: notifications,
		Message: agentsvc.Message{ID: "m", Role: agentsvc.RoleUser, Parts: []agentsvc.Part{agentsvc.TextPart("hello")}},
	}
	if err := store.New(d, tenant).Accept(t.Context(), run, events(run.Task, 1, status(agentsvc.Submitted), status(agentsvc.Working)), nil); err != nil {
		t.Fatal(err)
	}
	return run
}

// end has the task write an artifact and end.
func end(t *testing.T, d *db.DB, run *store.Run) {
	t.Helper()
	rec := store.Record{End: store.Completed, Events: events(run.Task, run.Seq+1,
		agentsvc.Event{Artifact: &agentsvc.ArtifactUpdate{Artifact: agentsvc.Artifact{ID: "x", Parts: []agentsvc.Part{agentsvc.TextPart("x")}}}},
		status(agentsvc.Completed))}
	if err := store.New(d, run.Tenant).Record(t.Context(), run, rec); err != nil {
		t.Fatal(err)
	}
}

func status(s agentsvc.State) agentsvc.Event {
	return agentsvc.Event{Status: &agentsvc.Status{State: s}}
}

func events(id agentsvc.TaskID, seq int64, evs ...agentsvc.Event) []agentsvc.Event {
	for i := range evs {
		evs[i].Task, evs[i].Seq, evs[i].At = id, seq+int64(i), time.Now().UTC().Truncate(time.Microsecond)
	}
	return evs
}

// heard is a request that a receiver has got.
type heard struct {
	header http.Header
	body   string
}

// receiver answers what answer says to the nth request, counted from 1, and notes what it hears.
func receiver(t *testing.T, answer func(n int) int) (url string, all chan heard) {
	t.Helper()
	all = make(chan heard, 100)
	var mu sync.Mutex
	n := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		n++
		w.WriteHeader(answer(n))
		all <- heard{r.Header.Clone(), string(body)}
	}))
	t.Cleanup(srv.Close)
	return srv.URL, all
}

func well(int) int { return http.StatusNoContent }

// next waits for what a receiver hears next.
func next(t *testing.T, all chan heard) heard {
	t.Helper()
	select {
	case h := <-all:
		return h
	case <-time.After(20 * time.Second):
		t.Fatal("nothing comes")
		return heard{}
	}
}

// bodies waits for n requests and returns their bodies.
func bodies(t *testing.T, all chan heard, n int) (out []string) {
	t.Helper()
	for range n {
		out = append(out, next(t, all).body)
	}
	return out
}

// until waits until a receiver of the task is in a state.
func until(t *testing.T, d *db.DB, run store.Run, state store.ReceiverState) store.Receiver {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		list, err := store.New(d, run.Tenant).Receivers(t.Context(), run.Task)
		if err != nil || len(list) != 1 {
			t.Fatalf("%+v, %v", list, err)
		}
		if list[0].State == state {
			return list[0]
		}
		if time.Now().After(deadline) {
			t.Fatalf("the receiver is %+v, want %s", list[0], state)
		}
	}
}

// TestAddress: what is sealed opens for its owner and app alone, and what nothing may be sent to is refused.
func TestAddress(t *testing.T) {
	t.Parallel()
	d := desk(t, "acme", notify.Options{})
	a := notify.Address{URL: "https://example.com/told?key=secret", Token: "token", Scheme: "bEARER", Credentials: "credentials"}
	r, err := d.Receiver(ana, "r", "each", a)
	if err != nil {
		t.Fatal(err)
	}
	a.Scheme = "Bearer"
	if got, err := d.Address(ana, r); err != nil || got != a {
		t.Errorf("%+v, %v", got, err)
	}
	for _, word := range []string{"secret", "token", "credentials"} {
		if strings.Contains(r.Value, word) {
			t.Errorf("%s is kept as it is", word)
		}
	}
	for name, err := range map[string]error{
		"another owner": second(d.Address(agentsvc.Owner{Issuer: "stoa", Subject: "eve"}, r)),
		"another app":   second(desk(t, "globex", notify.Options{}).Address(ana, r)),
	} {
		if err == nil {
			t.Errorf("%s opens it", name)
		}
	}
	inside := desk(t, "acme", notify.Options{Callers: near})
	if _, err := inside.Receiver(ana, "", "each", notify.Address{URL: "http://localhost"}); err != nil {
		t.Errorf("http inside: %v", err)
	}
	for name, a := range map[string]notify.Address{
		"none": {}, "no host": {URL: "https:///x"}, "http": {URL: "http://example.com"}, "file": {URL: "file:///etc/passwd"},
		"name": {URL: "https://me@example.com"}, "long": {URL: "https://example.com/" + strings.Repeat("x", 2048)},
		"scheme": {URL: "https://example.com", Scheme: "Digest"}, "no scheme": {URL: "https://example.com", Credentials: "x"},
		"line break": {URL: "https://example.com", Token: "a\r\nHost: b"}, "credentials": {URL: "https://example.com", Scheme: "Basic", Credentials: "a\x00"},
	} {
		_, err := d.Receiver(ana, "", "each", a)
		var wrong *agentsvc.InvalidError
		if !errors.As(err, &wrong) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func diff(t *testing.T, want, got any) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}
