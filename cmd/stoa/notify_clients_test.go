package main

import (
	"context"
	"errors"
	"net/http"
	"testing"

	spec "github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"
	"github.com/a2aproject/a2a-go/v2/a2acompat/a2av0"
	lib03 "github.com/a2aproject/a2a-go/v2/a2agrpc/v0"
	lib10 "github.com/a2aproject/a2a-go/v2/a2agrpc/v1"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"stoa/tenancy/db/dbtest"
)

// officialInterfaces returns the protocol versions and bindings of the official clients, with their addresses.
func (ts *testServer) officialInterfaces() map[string]*spec.AgentInterface {
	web, dialled := ts.url+"/a2a/assistant", ts.GRPCAddress().String()
	return map[string]*spec.AgentInterface{
		"1.0 JSON-RPC": {URL: web, ProtocolBinding: spec.TransportProtocolJSONRPC, ProtocolVersion: "1.0"},
		"1.0 REST":     {URL: web, ProtocolBinding: spec.TransportProtocolHTTPJSON, ProtocolVersion: "1.0"},
		"1.0 gRPC":     {URL: dialled, ProtocolBinding: spec.TransportProtocolGRPC, ProtocolVersion: "1.0", Tenant: "acme/assistant"},
		"0.3 JSON-RPC": {URL: web, ProtocolBinding: spec.TransportProtocolJSONRPC, ProtocolVersion: "0.3"},
		"0.3 REST":     {URL: web + "/v0.3", ProtocolBinding: spec.TransportProtocolHTTPJSON, ProtocolVersion: "0.3"},
		"0.3 gRPC":     {URL: dialled, ProtocolBinding: spec.TransportProtocolGRPC, ProtocolVersion: "0.3"},
	}
}

// bearerTransport is an HTTP transport that sends a token.
type bearerTransport string

func (t bearerTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(t))
	return http.DefaultTransport.RoundTrip(r)
}

// newOfficialClient returns the official Go client for one of these interfaces.
func newOfficialClient(t *testing.T, transport *spec.AgentInterface, token string) *a2aclient.Client {
	t.Helper()
	hc := &http.Client{Transport: bearerTransport(token)}
	dial := []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, next grpc.UnaryInvoker, o ...grpc.CallOption) error {
			return next(metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token), method, req, reply, cc, o...)
		}),
	}
	c, err := a2aclient.NewFromEndpoints(t.Context(), []*spec.AgentInterface{transport},
		a2aclient.WithJSONRPCTransport(hc), a2aclient.WithRESTTransport(hc), lib10.WithGRPCTransport(dial...), lib03.WithGRPCTransport(dial...),
		a2av0.WithJSONRPCTransport(a2av0.JSONRPCTransportConfig{Client: hc}), a2av0.WithRESTTransport(a2av0.RESTTransportConfig{Client: hc}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Destroy() })
	return c
}

// TestPushClients sets, reads and deletes push notification configs with the official client of each version and
// binding. Foreign callers find none of them.
func TestPushClients(t *testing.T) {
	t.Parallel()
	h := openServerWith(t, dbtest.NewPostgresURL(t), newTestLog(t), "../../examples/notifications.yaml")
	token := h.createNotifyingApp(t)
	eve := h.createToken(t, "acme", "eve", nil)
	for name, transport := range h.officialInterfaces() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, in, c := t.Context(), newInbox(t), newOfficialClient(t, transport, token)
			secret := &spec.PushAuthInfo{Scheme: "Bearer", Credentials: "secret"}
			answer, err := c.SendMessage(ctx, &spec.SendMessageRequest{
				Message: spec.NewMessage(spec.MessageRoleUser, spec.NewTextPart("ask")),
				Config:  &spec.SendMessageConfig{PushConfig: &spec.PushConfig{ID: "with-it", URL: in.url, Token: "token", Auth: secret}},
			})
			if err != nil {
				t.Fatal(err)
			}
			task, ok := answer.(*spec.Task)
			if !ok || task.Status.State != spec.TaskStateInputRequired {
				t.Fatalf("send answers %+v", answer)
			}
			shown := &spec.PushAuthInfo{Scheme: "Bearer"} // responses contain no secret
			other := spec.PushConfig{TaskID: task.ID, ID: "other", URL: "https://receiver.invalid/told"}
			want := []*spec.PushConfig{{TaskID: other.TaskID, ID: other.ID, URL: other.URL}, {TaskID: task.ID, ID: "with-it", URL: in.url, Auth: shown}}
			made, err := c.CreateTaskPushConfig(ctx, &other)
			if diff := cmp.Diff(want[0], made); err != nil || diff != "" {
				t.Errorf("create: %v %s", err, diff)
			}
			got, err := c.GetTaskPushConfig(ctx, &spec.GetTaskPushConfigRequest{TaskID: task.ID, ID: "with-it"})
			if diff := cmp.Diff(want[1], got); err != nil || diff != "" {
				t.Errorf("get: %v %s", err, diff)
			}
			all, err := c.ListTaskPushConfigs(ctx, &spec.ListTaskPushConfigRequest{TaskID: task.ID})
			if diff := cmp.Diff(want, all); err != nil || diff != "" {
				t.Errorf("list: %v %s", err, diff)
			}
			for range 2 {
				if err := c.DeleteTaskPushConfig(ctx, &spec.DeleteTaskPushConfigRequest{TaskID: task.ID, ID: "other"}); err != nil {
					t.Errorf("delete: %v", err)
				}
			}
			otherCaller := newOfficialClient(t, transport, eve)
			for what, err := range map[string]error{
				"a deleted one":         onlyError(c.GetTaskPushConfig(ctx, &spec.GetTaskPushConfigRequest{TaskID: task.ID, ID: "other"})),
				"another caller's get":  onlyError(otherCaller.GetTaskPushConfig(ctx, &spec.GetTaskPushConfigRequest{TaskID: task.ID, ID: "with-it"})),
				"another caller's list": onlyError(otherCaller.ListTaskPushConfigs(ctx, &spec.ListTaskPushConfigRequest{TaskID: task.ID})),
				"another caller's new":  onlyError(otherCaller.CreateTaskPushConfig(ctx, &spec.PushConfig{TaskID: task.ID, URL: in.url})),
				"a stranger's end":      otherCaller.DeleteTaskPushConfig(ctx, &spec.DeleteTaskPushConfigRequest{TaskID: task.ID, ID: "with-it"}),
				"no such task":          onlyError(c.ListTaskPushConfigs(ctx, &spec.ListTaskPushConfigRequest{TaskID: "none"})),
			} {
				if !errors.Is(err, spec.ErrTaskNotFound) {
					t.Errorf("%s: %v, want %v", what, err, spec.ErrTaskNotFound)
				}
			}
			if _, err := c.CreateTaskPushConfig(ctx, &spec.PushConfig{TaskID: task.ID, URL: "ftp://receiver.invalid"}); !errors.Is(err, spec.ErrInvalidParams) {
				t.Errorf("an address that is none: %v", err)
			}
			if _, err := c.CancelTask(ctx, &spec.CancelTaskRequest{ID: task.ID}); err != nil {
				t.Fatal(err)
			}
			word := "TASK_STATE_CANCELED"
			if transport.ProtocolVersion == "0.3" {
				word = `"canceled"`
			}
			in.awaitMessage(t, word)
		})
	}
}

func onlyError[T any](_ T, err error) error { return err }
