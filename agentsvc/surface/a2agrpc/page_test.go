package a2agrpc_test

import (
	"errors"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"

	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/a2agrpc"
)

// TestPage makes the calls of the page on this API.
func TestPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/api/grpc.md")
	if err != nil {
		t.Fatal(err)
	}
	h := newHouse(t, surface.Options{}, a2agrpc.Options{})
	calls := regexp.MustCompile(`(?m)^grpcurl -plaintext (?:-H '(.*?): (.*?)' )?-d '(.*)' localhost:50051 (\S+)/(\S+)$`).FindAllStringSubmatch(string(page), -1)
	if len(calls) < 4 {
		t.Fatalf("the page holds the calls %q", calls)
	}
	for _, c := range calls {
		header, value, message, service, method := c[1], c[2], c[3], c[4], c[5]
		found, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service + "." + method))
		if err != nil {
			t.Fatal(err)
		}
		d := found.(protoreflect.MethodDescriptor)
		in := dynamicpb.NewMessage(d.Input())
		if err := protojson.Unmarshal([]byte(message), in); err != nil {
			t.Errorf("%s: %v", message, err)
		}
		ctx := t.Context()
		if header != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, header, value)
		}
		stream, err := h.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/"+service+"/"+method)
		if err == nil {
			err = stream.SendMsg(in)
		}
		var answers strings.Builder
		for err == nil {
			out := dynamicpb.NewMessage(d.Output())
			if err = stream.RecvMsg(out); err == nil {
				answers.WriteString(protojson.Format(out))
			}
		}
		if !errors.Is(err, io.EOF) || strings.Contains(method, "Send") && !strings.Contains(answers.String(), "You said: hello") {
			t.Errorf("%s %s: %v %s", method, message, err, answers.String())
		}
	}
}
