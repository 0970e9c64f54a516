package a2agrpc_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"

	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/a2agrpc"
	"stoa/agentsvc/surface/surfacetest"
)

// TestDialogues replays the same dialogue in both versions.
func TestDialogues(t *testing.T) {
	t.Parallel()
	surfacetest.RunDialogues(t, func(h *surfacetest.Fixture) []surface.Route {
		var served *fixture
		h.CallMethod = func(t testing.TB, method, body string, headers ...string) []string {
			t.Helper()
			if served == nil {
				served = serveGRPC(t, h, listenLocal(t), a2agrpc.Options{})
			}
			return callMethod(t, served.conn, method, body, headers...)
		}
		return nil
	})
}

// callMethod makes a call by reflection, as grpcurl does, and returns the messages received in JSON; the last one
// may be the error.
func callMethod(t testing.TB, conn *grpc.ClientConn, name, body string, headers ...string) (reported []string) {
	t.Helper()
	service, method, _ := strings.Cut(name, "/")
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service + "." + method))
	if err != nil {
		t.Fatal(err)
	}
	d := found.(protoreflect.MethodDescriptor)
	in := dynamicpb.NewMessage(d.Input())
	if err := protojson.Unmarshal([]byte(body), in); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	stream, err := conn.NewStream(metadata.AppendToOutgoingContext(t.Context(), headers...), &grpc.StreamDesc{ServerStreams: true}, "/"+name)
	if err == nil {
		err = stream.SendMsg(in)
	}
	if err == nil {
		err = stream.CloseSend()
	}
	for err == nil {
		out := dynamicpb.NewMessage(d.Output())
		if err = stream.RecvMsg(out); err == nil {
			reported = append(reported, compactJSON(t, out))
		}
	}
	if errors.Is(err, io.EOF) {
		return reported
	}
	st := status.Convert(err)
	failure := map[string]any{"code": st.Code().String(), "message": st.Message()}
	for _, detail := range st.Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			failure["reason"], failure["domain"], failure["metadata"] = info.GetReason(), info.GetDomain(), info.GetMetadata()
		} else {
			failure["detail"] = fmt.Sprintf("%T", detail)
		}
	}
	raw, err := json.Marshal(failure)
	if err != nil {
		t.Fatal(err)
	}
	return append(reported, string(raw))
}

// compactJSON returns a message as JSON without spaces, since protojson adds spaces at random.
func compactJSON(t testing.TB, m *dynamicpb.Message) string {
	t.Helper()
	raw, err := protojson.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		t.Fatal(err)
	}
	return b.String()
}
