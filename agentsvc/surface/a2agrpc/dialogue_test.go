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

// TestDialogues plays the one story in both versions.
func TestDialogues(t *testing.T) {
	t.Parallel()
	surfacetest.Dialogues(t, func(h *surfacetest.House) []surface.Route {
		var served *house
		h.Call = func(t testing.TB, method, body string, headers ...string) []string {
			t.Helper()
			if served == nil {
				served = serve(t, h, port(t), a2agrpc.Options{})
			}
			return dialled(t, served.conn, method, body, headers...)
		}
		return nil
	})
}

// dialled makes a call as grpcurl does, and returns the messages that came, the last one perhaps why no more did.
func dialled(t testing.TB, conn *grpc.ClientConn, name, body string, headers ...string) (told []string) {
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
			told = append(told, plain(t, out))
		}
	}
	if errors.Is(err, io.EOF) {
		return told
	}
	st := status.Convert(err)
	why := map[string]any{"code": st.Code().String(), "message": st.Message()}
	for _, detail := range st.Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			why["reason"], why["domain"], why["metadata"] = info.GetReason(), info.GetDomain(), info.GetMetadata()
		} else {
			why["detail"] = fmt.Sprintf("%T", detail)
		}
	}
	raw, err := json.Marshal(why)
	if err != nil {
		t.Fatal(err)
	}
	return append(told, string(raw))
}

// plain is a message as JSON, which the library writes now with spaces and now without.
func plain(t testing.TB, m *dynamicpb.Message) string {
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
