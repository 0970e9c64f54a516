package a2agrpc_test

import (
	"context"
	"errors"
	"io"
	"math"
	"strings"
	"testing"

	pb03 "github.com/a2aproject/a2a-go/a2apb"
	spec "github.com/a2aproject/a2a-go/v2/a2a"
	pb10 "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/a2agrpc"
	"stoa/authz"
)

// errorInfo returns the google.rpc.ErrorInfo of a status, which has the reason of the error.
func errorInfo(err error) (info *errdetails.ErrorInfo) {
	for _, d := range status.Convert(err).Details() {
		if found, ok := d.(*errdetails.ErrorInfo); ok {
			info = found
		}
	}
	return info
}

func newSendRequest(text string) *pb10.SendMessageRequest {
	return &pb10.SendMessageRequest{Message: &pb10.Message{MessageId: "m", Role: pb10.Role_ROLE_USER, Parts: []*pb10.Part{{Content: &pb10.Part_Text{Text: text}}}}}
}

// TestAuthentication checks which credentials are accepted, and which agent a call reaches.
func TestAuthentication(t *testing.T) {
	t.Parallel()
	h := newFixture(t, surface.Options{}, a2agrpc.Options{})
	ana := h.mintToken(t, "acme", "ana")
	viewer := h.MintToken(t, "acme", authz.TokenSpec{Subject: "vera", Roles: []string{"viewer"}})
	c := pb10.NewA2AServiceClient(h.conn)
	tests := []struct {
		name, token, agent, tenant string
		more                       []string // additional metadata
		want                       codes.Code
		reason                     string
	}{
		{"the app's own agent", ana, "", "", nil, codes.OK, ""},
		{"agent by metadata", ana, "clerk", "", nil, codes.OK, ""},
		{"agent by tenant", ana, "", "clerk", nil, codes.OK, ""},
		{"app by tenant", ana, "", "acme", nil, codes.OK, ""},
		{"app and agent by tenant", ana, "", "acme/clerk", nil, codes.OK, ""},
		{"both agree", ana, "clerk", "acme/clerk", nil, codes.OK, ""},
		{"they disagree", ana, "assistant", "clerk", nil, codes.NotFound, "NOT_FOUND"},
		{"another app", ana, "", "globex/assistant", nil, codes.NotFound, "NOT_FOUND"},
		{"no such app", ana, "", "nobody/assistant", nil, codes.NotFound, "NOT_FOUND"},
		{"no such agent", ana, "nobody", "", nil, codes.NotFound, "NOT_FOUND"},
		{"private agent", ana, "hidden", "", nil, codes.NotFound, "NOT_FOUND"},
		{"nobody, in the open app", "", "assistant", "", nil, codes.OK, ""},
		{"nobody, at an internal agent", "", "clerk", "", nil, codes.NotFound, "NOT_FOUND"},
		{"a forged token", ana[:len(ana)-4] + "AAAA", "", "", nil, codes.Unauthenticated, "UNAUTHENTICATED"},
		{"two credentials", ana, "", "", []string{"authorization", "Bearer " + ana}, codes.Unauthenticated, "UNAUTHENTICATED"},
		{"no scope", viewer, "", "", nil, codes.PermissionDenied, "UNAUTHORIZED"},
		{"this version", ana, "", "", []string{"a2a-version", "1.0"}, codes.OK, ""},
		{"another version", ana, "", "", []string{"a2a-version", "0.3"}, codes.FailedPrecondition, "VERSION_NOT_SUPPORTED"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			ctx := metadata.AppendToOutgoingContext(t.Context(), append(tt.more, "x-request-id", "req-1")...)
			if tt.token != "" {
				ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+tt.token)
			}
			if tt.agent != "" {
				ctx = metadata.AppendToOutgoingContext(ctx, "agent-name", tt.agent)
			}
			req := newSendRequest("hello")
			req.Tenant, req.Message.MessageId = tt.tenant, tt.name
			var header, trailer metadata.MD
			answer, err := c.SendMessage(ctx, req, grpc.Header(&header), grpc.Trailer(&trailer))
			info := errorInfo(err)
			switch {
			case status.Code(err) != tt.want:
				t.Errorf("%v, want %v", err, tt.want)
			case tt.want == codes.OK:
				if got := answer.GetTask().GetStatus().GetState(); got != pb10.TaskState_TASK_STATE_COMPLETED || header.Get("x-request-id")[0] != "req-1" {
					t.Errorf("%v, %v", got, header)
				}
			case info.GetReason() != tt.reason || info.GetDomain() != "a2a-protocol.org" || info.GetMetadata()["request_id"] != "req-1" || trailer.Get("x-request-id")[0] != "req-1":
				t.Errorf("%v with %v and %v", err, info, trailer)
			}
		})
	}
}

// TestInput sends messages that must be refused, and checks reason and field of the errors.
func TestInput(t *testing.T) {
	t.Parallel()
	h := newFixture(t, surface.Options{}, a2agrpc.Options{})
	c10, c03 := pb10.NewA2AServiceClient(h.conn), pb03.NewA2AServiceClient(h.conn)
	ctx := withCredentials(t.Context(), h.mintToken(t, "acme", "ana"), "assistant")
	sent := func(change func(*pb10.SendMessageRequest)) error {
		req := newSendRequest("hello")
		change(req)
		_, err := c10.SendMessage(ctx, req)
		return err
	}
	minus := int32(-1)
	deep := structpb.NewNullValue()
	for range 80 {
		deep = structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{deep}})
	}
	data := func(v *structpb.Value) func(*pb10.SendMessageRequest) {
		return func(r *pb10.SendMessageRequest) { r.Message.Parts[0].Content = &pb10.Part_Data{Data: v} }
	}
	object := func(v *structpb.Value) *structpb.Value {
		return structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{"x": v}})
	}
	many := func(r *pb10.SendMessageRequest) {
		for range 1000 {
			r.Message.Parts = append(r.Message.Parts, r.Message.Parts[0])
		}
	}
	tests := []struct {
		name string
		err  error
		want codes.Code
		text string
	}{
		{"no message", sent(func(r *pb10.SendMessageRequest) { r.Message = nil }), codes.InvalidArgument, "message cannot be nil"},
		{"no id", sent(func(r *pb10.SendMessageRequest) { r.Message.MessageId = "" }), codes.InvalidArgument, "message"},
		{"no role", sent(func(r *pb10.SendMessageRequest) { r.Message.Role = 0 }), codes.InvalidArgument, "role"},
		{"an unknown role", sent(func(r *pb10.SendMessageRequest) { r.Message.Role = 7 }), codes.InvalidArgument, "message.role: there is no Role 7"},
		{"no parts", sent(func(r *pb10.SendMessageRequest) { r.Message.Parts = nil }), codes.InvalidArgument, "part"},
		{"an empty part", sent(func(r *pb10.SendMessageRequest) { r.Message.Parts[0].Content = nil }), codes.InvalidArgument, "part"},
		{"too many parts", sent(many), codes.InvalidArgument, "at most 1000 parts"},
		{"data that is null", sent(data(structpb.NewNullValue())), codes.InvalidArgument, "message.parts[0].data: must not be null"},
		{"data that is nothing", sent(data(&structpb.Value{})), codes.InvalidArgument, "message.parts[0].data: must not be null"},
		{"no number", sent(data(object(structpb.NewNumberValue(math.NaN())))), codes.InvalidArgument, "a number that JSON does not have"},
		{"a list nested too deeply", sent(data(deep)), codes.ResourceExhausted, "nested more than 64 levels deep"},
		{"nested too deeply", sent(data(object(deep))), codes.ResourceExhausted, "nested more than 64 levels deep"},
		{"a picture", sent(func(r *pb10.SendMessageRequest) {
			r.Message.Parts[0] = &pb10.Part{Content: &pb10.Part_Raw{Raw: []byte("x")}, MediaType: "image/png"}
		}), codes.InvalidArgument, `"image/png"`},
		{"negative length", sent(func(r *pb10.SendMessageRequest) {
			r.Configuration = &pb10.SendMessageConfiguration{HistoryLength: &minus}
		}), codes.InvalidArgument, "configuration.historyLength: must not be negative"},
		{"push notifications", sent(func(r *pb10.SendMessageRequest) {
			r.Configuration = &pb10.SendMessageConfiguration{TaskPushNotificationConfig: &pb10.TaskPushNotificationConfig{Url: "https://x.example"}}
		}), codes.FailedPrecondition, "push notifications are not supported"},
		{"an id that is none", errorOf(c10.GetTask(ctx, &pb10.GetTaskRequest{Id: strings.Repeat("x", 300)})), codes.InvalidArgument, "id: must be at most 256 bytes"},
		{"no id of a task", errorOf(c10.GetTask(ctx, &pb10.GetTaskRequest{})), codes.InvalidArgument, "task id cannot be empty"},
		{"negative length of a task", errorOf(c10.GetTask(ctx, &pb10.GetTaskRequest{Id: "x", HistoryLength: &minus})), codes.InvalidArgument, "historyLength: must not be negative"},
		{"an unknown state", errorOf(c10.ListTasks(ctx, &pb10.ListTasksRequest{Status: 99})), codes.InvalidArgument, "status: there is no TaskState 99"},
		{"page too large", errorOf(c10.ListTasks(ctx, &pb10.ListTasksRequest{PageSize: pointerTo(int32(101))})), codes.InvalidArgument, "pageSize: must be between"},
		{"page token of nobody", errorOf(c10.ListTasks(ctx, &pb10.ListTasksRequest{PageToken: "bm9ib2R5"})), codes.InvalidArgument, "pageToken: is not"},
		{"name of nothing, 0.3", errorOf(c03.GetTask(ctx, &pb03.GetTaskRequest{Name: "x"})), codes.InvalidArgument, "task id"},
		{"no message, 0.3", errorOf(c03.SendMessage(ctx, &pb03.SendMessageRequest{})), codes.InvalidArgument, "request message is missing"},
		{"negative page, 0.3", errorOf(c03.ListTasks(ctx, &pb03.ListTasksRequest{PageSize: -1})), codes.InvalidArgument, "pageSize: must not be negative"},
		{"no such method", h.conn.Invoke(ctx, "/lf.a2a.v1.A2AService/Nothing", newSendRequest("x"), newSendRequest("")), codes.Unimplemented, ""},
		{"rubbish", sendRawMessage(ctx, h.conn, []byte("\xff\xff")), codes.InvalidArgument, "the message does not decode"},
		{"text that is no UTF-8", sendRawMessage(ctx, h.conn, []byte("\x0a\x02\xff\xfe")), codes.InvalidArgument, "the message does not decode"},
		{"nothing", sendRawMessage(ctx, h.conn, nil), codes.InvalidArgument, "the call holds no message"},
		{"a message too large", sendRawMessage(ctx, h.conn, make([]byte, 28<<20+1)), codes.ResourceExhausted, "the message is too large, 28 MiB are allowed"},
		{"one much too large", sendRawMessage(ctx, h.conn, make([]byte, 40<<20)), codes.ResourceExhausted, "the message is too large, 28 MiB are allowed"},
	}
	for _, tt := range tests {
		if status.Code(tt.err) != tt.want || !strings.Contains(status.Convert(tt.err).Message(), tt.text) {
			t.Errorf("%s: %v, want %v with %q", tt.name, tt.err, tt.want, tt.text)
		} else if tt.want != codes.Unimplemented && errorInfo(tt.err) == nil {
			t.Errorf("%s: %v has no ErrorInfo", tt.name, tt.err)
		}
	}
	if err := sendRawMessage(ctx, h.conn, make([]byte, 64<<20)); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("64 MiB: %v", err)
	}
}

// TestPageToken checks that a page token is refused for another user, another app and another query.
func TestPageToken(t *testing.T) {
	t.Parallel()
	h := newFixture(t, surface.Options{}, a2agrpc.Options{})
	ana, eve, otherApp := h.mintToken(t, "acme", "ana"), h.mintToken(t, "acme", "eve"), h.mintToken(t, "globex", "ana")
	for _, v := range versions {
		list := func(token string, req spec.ListTasksRequest) (*spec.ListTasksResponse, error) {
			req.PageSize = 1
			return h.newClient(t, v.name, token, "").ListTasks(t.Context(), &req)
		}
		c := h.newClient(t, v.name, ana, "")
		sendMessage(t, c, textRequest("hello"))
		sendMessage(t, c, textRequest("hello again"))
		first, err := list(ana, spec.ListTasksRequest{})
		if err != nil || first.NextPageToken == "" {
			t.Fatal(first, err)
		}
		next, err := list(ana, spec.ListTasksRequest{PageToken: first.NextPageToken})
		if err != nil || len(next.Tasks) != 1 || next.Tasks[0].ID == first.Tasks[0].ID {
			t.Errorf("%s: the second page is %+v, %v", v.name, next, err)
		}
		for name, err := range map[string]error{
			"another user":  errorOf(list(eve, spec.ListTasksRequest{PageToken: first.NextPageToken})),
			"another app":   errorOf(list(otherApp, spec.ListTasksRequest{PageToken: first.NextPageToken})),
			"another query": errorOf(list(ana, spec.ListTasksRequest{PageToken: first.NextPageToken, Status: spec.TaskStateWorking})),
		} {
			if !errors.Is(err, spec.ErrInvalidParams) {
				t.Errorf("%s: the token of %s: %v", v.name, name, err)
			}
		}
	}
}

func pointerTo[T any](v T) *T { return &v }

// sendRawMessage calls SendMessage with an encoded message, nil = a call without a message.
func sendRawMessage(ctx context.Context, conn *grpc.ClientConn, message []byte) error {
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/lf.a2a.v1.A2AService/SendMessage", grpc.ForceCodecV2(bytesCodec{}))
	if err != nil {
		return err
	}
	if message != nil {
		if err := stream.SendMsg(message); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
	}
	_ = stream.CloseSend()
	return stream.RecvMsg(new([]byte))
}

// bytesCodec is a gRPC codec that passes bytes through unchanged.
type bytesCodec struct{}

func (bytesCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

func (bytesCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

func (bytesCodec) Name() string { return "proto" }
