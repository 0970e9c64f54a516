package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	pb03 "github.com/a2aproject/a2a-go/a2apb"
	pb10 "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"
)

// grpcProbe is how a foreign caller would call a gRPC method, and what a caller needs for it. Messages are JSON, with
// ids as in paths.
type grpcProbe struct {
	messages []string
	anyOf    []string // scopes, one of which is needed
}

const (
	service10 = "/lf.a2a.v1.A2AService/"
	service03 = "/a2a.v1.A2AService/"
)

// foreignMessages10 and foreignMessages03 are messages of each version with ids of another tenant or user.
var (
	foreignMessages10 = []string{
		`{"tenant": "assistant", "message": {"messageId": "walk-1", "role": "ROLE_USER", "parts": [{"text": "mine now"}], "taskId": "{task}"}}`,
		`{"tenant": "assistant", "message": {"messageId": "walk-2", "role": "ROLE_USER", "parts": [{"text": "recall"}], "contextId": "{context}"}}`,
		`{"tenant": "assistant", "message": {"messageId": "{message}", "role": "ROLE_USER", "parts": [{"text": "hello"}], "contextId": "{context}"}}`,
		`{"tenant": "assistant", "message": {"messageId": "walk-3", "role": "ROLE_USER", "parts": [{"data": {"type": "tool_approval", "call_id": "{call}", "decision": "approve"}}], "taskId": "{held}"}}`,
		`{"tenant": "assistant", "message": {"messageId": "walk-4", "role": "ROLE_USER", "parts": [{"data": {"type": "tool_credential", "tool": "locked", "value": "x"}}], "taskId": "{wanting}"}}`,
		`{"tenant": "{app}", "message": {"messageId": "walk-5", "role": "ROLE_USER", "parts": [{"text": "hello"}]}}`,
		`{"tenant": "{app}/assistant", "message": {"messageId": "walk-6", "role": "ROLE_USER", "parts": [{"text": "hello"}]}}`,
		`{"tenant": "{agent}", "message": {"messageId": "walk-7", "role": "ROLE_USER", "parts": [{"text": "hello"}]}}`,
		`{"tenant": "assistant", "message": {"messageId": "walk-8", "role": "ROLE_USER", "parts": [{"text": "hello"}], "referenceTaskIds": ["{task}"]}}`,
	}
	foreignMessages03 = []string{
		`{"request": {"messageId": "walk-1", "role": "ROLE_USER", "parts": [{"text": "mine now"}], "taskId": "{task}"}}`,
		`{"request": {"messageId": "walk-2", "role": "ROLE_USER", "parts": [{"text": "recall"}], "contextId": "{context}"}, "configuration": {"blocking": true}}`,
		`{"request": {"messageId": "{message}", "role": "ROLE_USER", "parts": [{"text": "hello"}], "contextId": "{context}"}, "configuration": {"blocking": true}}`,
		`{"request": {"messageId": "walk-3", "role": "ROLE_USER", "parts": [{"data": {"data": {"type": "tool_approval", "call_id": "{call}", "decision": "approve"}}}], "taskId": "{held}"}}`,
		`{"request": {"messageId": "walk-4", "role": "ROLE_USER", "parts": [{"data": {"data": {"type": "tool_credential", "tool": "locked", "value": "x"}}}], "taskId": "{wanting}"}}`,
		`{"request": {"messageId": "walk-5", "role": "ROLE_USER", "parts": [{"text": "hello"}], "referenceTaskIds": ["{task}"]}, "configuration": {"blocking": true}}`,
	}
	foreignTasks10       = []string{`{"tenant": "assistant", "id": "{task}"}`, `{"tenant": "{app}", "id": "{task}"}`, `{"tenant": "{agent}", "id": "{task}"}`, `{"tenant": "assistant", "id": "{held}"}`, `{"tenant": "assistant", "id": "{wanting}"}`}
	foreignTasks03       = []string{`{"name": "tasks/{task}"}`, `{"name": "tasks/{held}"}`, `{"name": "tasks/{wanting}"}`}
	foreignPushConfigs10 = []string{`{"tenant": "assistant", "taskId": "{task}", "id": "{task}"}`, `{"tenant": "{app}/assistant", "taskId": "{task}", "id": "{task}"}`}
	foreignPushConfigs03 = []string{`{"name": "tasks/{task}/pushNotificationConfigs/{task}"}`}
)

// grpcProbes has a row for each gRPC method. A method without a row fails the tests.
var grpcProbes = map[string]grpcProbe{
	service10 + "SendMessage":                      {foreignMessages10, assistantScopes()},
	service10 + "SendStreamingMessage":             {foreignMessages10, assistantScopes()},
	service10 + "GetTask":                          {foreignTasks10, assistantScopes("tasks:read")},
	service10 + "ListTasks":                        {[]string{`{"tenant": "assistant", "contextId": "{context}"}`, `{"tenant": "assistant", "pageToken": "{cursor}"}`, `{"tenant": "{app}"}`}, assistantScopes("tasks:read")},
	service10 + "CancelTask":                       {foreignTasks10, assistantScopes("tasks:cancel")},
	service10 + "SubscribeToTask":                  {foreignTasks10, assistantScopes("tasks:read")},
	service10 + "CreateTaskPushNotificationConfig": {[]string{`{"tenant": "assistant", "taskId": "{task}", "id": "{task}", "url": "https://thief.invalid"}`, `{"tenant": "{app}/assistant", "taskId": "{task}", "id": "{task}", "url": "https://thief.invalid"}`}, assistantScopes()},
	service10 + "GetTaskPushNotificationConfig":    {foreignPushConfigs10, assistantScopes()},
	service10 + "ListTaskPushNotificationConfigs":  {[]string{`{"tenant": "assistant", "taskId": "{task}"}`, `{"tenant": "{app}/assistant", "taskId": "{task}"}`, `{"tenant": "assistant", "taskId": "{task}", "pageToken": "{cursor}"}`}, assistantScopes()},
	service10 + "DeleteTaskPushNotificationConfig": {foreignPushConfigs10, assistantScopes()},
	service10 + "GetExtendedAgentCard":             {[]string{`{"tenant": "assistant"}`, `{"tenant": "{agent}"}`, `{"tenant": "{app}"}`}, assistantScopes("agents:read")},
	service03 + "SendMessage":                      {foreignMessages03, assistantScopes()},
	service03 + "SendStreamingMessage":             {foreignMessages03, assistantScopes()},
	service03 + "GetTask":                          {foreignTasks03, assistantScopes("tasks:read")},
	service03 + "ListTasks":                        {[]string{`{"contextId": "{context}"}`, `{"pageToken": "{cursor}"}`}, assistantScopes("tasks:read")},
	service03 + "CancelTask":                       {foreignTasks03, assistantScopes("tasks:cancel")},
	service03 + "TaskSubscription":                 {foreignTasks03, assistantScopes("tasks:read")},
	service03 + "CreateTaskPushNotificationConfig": {[]string{`{"parent": "tasks/{task}", "configId": "x", "config": {"name": "tasks/{task}/pushNotificationConfigs/x", "pushNotificationConfig": {"id": "{task}", "url": "https://thief.invalid"}}}`}, assistantScopes()},
	service03 + "GetTaskPushNotificationConfig":    {foreignPushConfigs03, assistantScopes()},
	service03 + "ListTaskPushNotificationConfig":   {[]string{`{"parent": "tasks/{task}"}`, `{"parent": "tasks/{task}", "pageToken": "{cursor}"}`}, assistantScopes()},
	service03 + "DeleteTaskPushNotificationConfig": {foreignPushConfigs03, assistantScopes()},
	service03 + "GetAgentCard":                     {[]string{`{}`}, assistantScopes("agents:read")},
}

// listGRPCMethods returns the full names of the agent methods of both services, such as
// /lf.a2a.v1.A2AService/SendMessage.
func listGRPCMethods() (names []string) {
	for _, d := range []grpc.ServiceDesc{pb10.A2AService_ServiceDesc, pb03.A2AService_ServiceDesc} {
		for _, m := range d.Methods {
			names = append(names, "/"+d.ServiceName+"/"+m.MethodName)
		}
		for _, m := range d.Streams {
			names = append(names, "/"+d.ServiceName+"/"+m.StreamName)
		}
	}
	return names
}

// probeGRPC tries foreign ids over gRPC and expects the responses of ids that never existed.
func (ts *testServer) probeGRPC(t *testing.T, token string, x appIDs) {
	t.Helper()
	conn := ts.dialGRPC(t)
	for _, method := range listGRPCMethods() {
		if missing := findUnprobedIDs(t, method); len(missing) > 0 {
			t.Errorf("%s: the isolation proof has no message that names another caller's %v", method, missing)
		}
		for _, agent := range []string{"assistant", x.agent, ""} {
			for _, message := range grpcProbes[method].messages {
				if agent != "" && !regexp.MustCompile(`^/a2a`).MatchString(method) {
					continue // 1.0 names the agent in its messages
				}
				of := agent
				if agent == x.agent {
					of = "{agent}"
				}
				theirs, none := ts.sendGRPCProbe(t, conn, token, method, message, of, x), ts.sendGRPCProbe(t, conn, token, method, message, of, unknownIDs)
				if theirs != none {
					t.Errorf("%s %s for %q: their id answers\n%s\none that never existed\n%s", method, message, agent, theirs, none)
				}
			}
		}
	}
}

// idFields are the fields of gRPC messages that contain ids, by the library's names.
var idFields = map[string]string{
	"task_id": "{task}", "context_id": "{context}", "message_id": "{message}", "page_token": "{cursor}", "tenant": "{app}", "parent": "{task}", "name": "{task}",
	"reference_task_ids": "{task}", "id": "{task}",
}

// findUnprobedIDs returns the id fields of a method's message, and of the messages in it, that no probe fills with a
// foreign id.
func findUnprobedIDs(t *testing.T, method string) (missing []string) {
	t.Helper()
	all := strings.Join(grpcProbes[method].messages, "\n")
	if all == "" {
		return []string{"ids"}
	}
	var check func(d protoreflect.MessageDescriptor, depth int)
	check = func(d protoreflect.MessageDescriptor, depth int) {
		for i := range d.Fields().Len() {
			f := d.Fields().Get(i)
			place, isID := idFields[string(f.Name())]
			if f.Name() == "name" && depth > 0 { // of a file or an extension
				isID = false
			}
			if isID && !regexp.MustCompile(`"`+f.JSONName()+`": \[?"[^"]*`+regexp.QuoteMeta(place)).MatchString(all) {
				missing = append(missing, f.JSONName())
			}
			if f.Message() != nil && !f.IsMap() && depth < 1 && f.Message().ParentFile() == d.ParentFile() {
				check(f.Message(), depth+1)
			}
		}
	}
	check(findMethod(t, method).Input(), 0)
	return missing
}

func (ts *testServer) dialGRPC(t *testing.T) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(ts.GRPCAddress().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// workingEvents matches the events of a working agent, whose text may come in one piece or in several.
var (
	workingEvents   = regexp.MustCompile(`(?m)^.*TASK_STATE_WORKING.*\n`)
	protoTimes      = regexp.MustCompile(`"(timestamp|totalSize|total_size|execution_time)":("[^"]*"|[0-9.e-]+)`)
	protoRequestIDs = regexp.MustCompile(`request_id:? ?"?[0-9a-f-]{36}"?`)
)

// sendGRPCProbe calls a method and returns its whole response.
func (ts *testServer) sendGRPCProbe(t *testing.T, conn *grpc.ClientConn, token, method, message, agent string, x appIDs) string {
	t.Helper()
	answers, err := callGRPC(t, conn, token, method, x.replaceIDs(message), x.replaceIDs(agent))
	st := grpcstatus.Convert(err)
	text := answers + st.Code().String() + " " + st.Message()
	for _, d := range st.Details() {
		if m, ok := d.(proto.Message); ok {
			text += "\n" + compactJSON(m)
		}
	}
	text = protoRequestIDs.ReplaceAllString(workingEvents.ReplaceAllString(text, ""), "REQUEST")
	return normalizeAnswer(protoTimes.ReplaceAllString(text, "TIME"), x)
}

// callGRPC calls a method with a message in JSON and returns its responses as lines of JSON.
func callGRPC(t *testing.T, conn *grpc.ClientConn, token, method, message, agent string) (answers string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
	}
	if agent != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "agent-name", agent)
	}
	return callGRPCWithContext(ctx, t, conn, method, message)
}

// callGRPCWithContext is callGRPC with the metadata of ctx.
func callGRPCWithContext(ctx context.Context, t *testing.T, conn *grpc.ClientConn, method, message string) (answers string, err error) {
	t.Helper()
	d := findMethod(t, method)
	in := dynamicpb.NewMessage(d.Input())
	if err := protojson.Unmarshal([]byte(message), in); err != nil {
		t.Fatalf("%s %s: %v", method, message, err)
	}
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, method)
	if err != nil {
		return "", err
	}
	if err := stream.SendMsg(in); err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	_ = stream.CloseSend()
	for {
		out := dynamicpb.NewMessage(d.Output())
		if err := stream.RecvMsg(out); errors.Is(err, io.EOF) {
			return answers, nil
		} else if err != nil {
			return answers, err
		}
		answers += compactJSON(out) + "\n"
	}
}

// compactJSON returns m as JSON without white space, which the library varies on purpose.
func compactJSON(m proto.Message) string {
	raw, _ := protojson.Marshal(m)
	var out bytes.Buffer
	_ = json.Compact(&out, raw)
	return out.String()
}

func findMethod(t *testing.T, method string) protoreflect.MethodDescriptor {
	t.Helper()
	name := protoreflect.FullName(regexp.MustCompile(`^/(.*)/(.*)$`).ReplaceAllString(method, "$1.$2"))
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return d.(protoreflect.MethodDescriptor)
}

// checkGRPCAccess lets every kind of caller use every gRPC method: what its row allows is accepted, everything else
// is refused.
func (ts *testServer) checkGRPCAccess(t *testing.T, callers []matrixCaller) {
	t.Helper()
	conn := ts.dialGRPC(t)
	for _, method := range listGRPCMethods() {
		row, ok := grpcProbes[method]
		if !ok {
			t.Errorf("%s: the proofs of isolation and of roles have no row for this method", method)
			continue
		}
		for _, c := range callers {
			message := row.messages[0]
			_, err := callGRPC(t, conn, c.token, method, unknownIDs.replaceIDs(message), "assistant")
			want := codes.OK // accepted
			switch {
			case c.unauthenticated && c.token != "", c.token == "":
				want = codes.Unauthenticated
			case c.operator, !slices.ContainsFunc(row.anyOf, func(s string) bool { return slices.Contains(c.scopes, s) }):
				want = codes.PermissionDenied
			}
			if c.token == "" {
				// the default app is open: another app is not possible without a credential
				continue
			}
			got := grpcstatus.Code(err)
			refused := got == codes.Unauthenticated || got == codes.PermissionDenied
			if want != codes.OK && got != want || want == codes.OK && (refused || got == codes.Internal || got == codes.Unknown) {
				t.Errorf("%s by %s: %v, want %v", method, c.name, err, want)
			}
		}
	}
}

// TestGRPCPort checks that a process serves gRPC at its own port and that its card has the address.
func TestGRPCPort(t *testing.T) {
	t.Parallel()
	p := startProcess(t, t.TempDir())
	at := regexp.MustCompile(`gRPC is at (\S+)\.`).FindStringSubmatch(p.Output())
	if at == nil {
		t.Fatalf("the process does not say where gRPC is:\n%s", p.Output())
	}
	conn, err := grpc.NewClient(at[1], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	message := `{"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}}`
	if answer, err := callGRPC(t, conn, "", service10+"SendMessage", message, ""); err != nil || !regexp.MustCompile(`You said: hi`).MatchString(answer) {
		t.Errorf("it answers %s, %v", answer, err)
	}
	var card struct {
		SupportedInterfaces []struct{ URL, ProtocolBinding, ProtocolVersion, Tenant string }
	}
	p.requireStatus(t, http.StatusOK, &card, "GET", "/a2a/assistant/.well-known/agent-card.json", "", nil)
	if want := fmt.Sprintf("{%s GRPC 1.0 default/assistant}", at[1]); !slices.ContainsFunc(card.SupportedInterfaces, func(i struct{ URL, ProtocolBinding, ProtocolVersion, Tenant string }) bool {
		return fmt.Sprint(i) == want
	}) {
		t.Errorf("the card lists %v, not %s", card.SupportedInterfaces, want)
	}
}
