package a2agrpc_test

import (
	"encoding/base64"
	"testing"

	pb03 "github.com/a2aproject/a2a-go/a2apb"
	pb10 "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/a2agrpc"
)

// TestFiles sends files over version 0.3, with raw bytes and with base64.
func TestFiles(t *testing.T) {
	t.Parallel()
	h := newFixture(t, surface.Options{}, a2agrpc.Options{})
	h.CreateApp(t, "viewers", `
llms: {demo: {provider: scripted, script: [{then: [{say: "I see."}]}]}}
agents: {viewer: {llm: demo, input_modes: ["image/png"]}}
`)
	const png = "\x89PNG\r\n\x1a\n\x00"
	ctx := withCredentials(t.Context(), h.mintToken(t, "viewers", "ana"), "viewer")
	c10, c03 := pb10.NewA2AServiceClient(h.conn), pb03.NewA2AServiceClient(h.conn)
	for _, x := range []struct{ name, sent, want string }{
		{"bytes", png, png},
		{"base64", base64.StdEncoding.EncodeToString([]byte(png)), png},
		{"almost base64", "QR==", "QR=="},
		{"a line's end", "\n", "\n"},
		{"nothing", "", ""},
	} {
		file := &pb03.FilePart{MimeType: "image/png", Name: "a.png", File: &pb03.FilePart_FileWithBytes{FileWithBytes: []byte(x.sent)}}
		answer, err := c03.SendMessage(ctx, &pb03.SendMessageRequest{
			Request:       &pb03.Message{MessageId: x.name, Role: pb03.Role_ROLE_USER, Parts: []*pb03.Part{{Part: &pb03.Part_File{File: file}}}},
			Configuration: &pb03.SendMessageConfiguration{Blocking: true},
		})
		if x.want == "" {
			if status.Code(err) != codes.InvalidArgument {
				t.Errorf("%s: %v", x.name, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", x.name, err)
			continue
		}
		task, err := c10.GetTask(ctx, &pb10.GetTaskRequest{Id: answer.GetTask().GetId()})
		if err != nil {
			t.Fatal(err)
		}
		if got := task.GetHistory()[0].GetParts()[0]; string(got.GetRaw()) != x.want || got.GetMediaType() != "image/png" || got.GetFilename() != "a.png" {
			t.Errorf("%s: %q was sent, and is reported as %v", x.name, x.sent, got)
		}
	}
}
