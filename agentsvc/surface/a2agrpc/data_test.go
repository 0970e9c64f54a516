package a2agrpc_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"

	pb03 "github.com/a2aproject/a2a-go/a2apb"
	pb10 "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/structpb"

	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/a2agrpc"
)

// anyDataConfig is an app with an agent that reads data and one that answers with data.
const anyDataConfig = `
llms:
  demo:
    provider: scripted
    script:
      - when: {text: "^make (?P<what>.*)$"}
        then: [{say: "{{what}}"}]
      - when: {text: "^(?P<what>.*)$"}
        then: [{ask: "What of it?"}]
agents:
  reader: {llm: demo, visibility: public, input_modes: ["text/plain", "application/json"], structured_output: {schema: {}}}
`

// TestData sends data of every JSON type over JSON-RPC and gRPC of version 1.0 and has an agent produce it. All of
// it must be readable over gRPC: unchanged in version 1.0, as an object in version 0.3.
func TestData(t *testing.T) {
	t.Parallel()
	h := newFixtureWith(t, anyDataConfig, surface.Options{}, a2agrpc.Options{})
	h.CreateApp(t, "any", anyDataConfig)
	ana := h.mintToken(t, "any", "ana")
	ctx := withCredentials(t.Context(), ana, "reader")
	c10, c03 := pb10.NewA2AServiceClient(h.conn), pb03.NewA2AServiceClient(h.conn)
	for i, data := range []string{`[1,2]`, `[]`, `"word"`, `""`, `1.5`, `true`, `{}`, `{"a":[null]}`, `{"value":1}`, `[{"value":{"value":[]}}]`} {
		var want any
		if err := json.Unmarshal([]byte(data), &want); err != nil {
			t.Fatal(err)
		}
		// expectParts checks that the last of parts holds the data.
		expectParts := func(call string, err error, parts func() []*pb10.Part) {
			t.Helper()
			if err != nil {
				t.Errorf("%s %s: %v", call, data, err)
				return
			}
			all := parts()
			if got := all[len(all)-1].GetData(); got.GetKind() == nil {
				t.Errorf("%s %s returns %v", call, data, all)
			} else if diff := cmp.Diff(want, got.AsInterface()); diff != "" {
				t.Errorf("%s %s (-want +got):\n%s", call, data, diff)
			}
		}
		firstParts := func(of *pb10.Task) []*pb10.Part { return of.GetHistory()[0].GetParts() }

		value, err := structpb.NewValue(want)
		if err != nil {
			t.Fatal(err)
		}
		req := newSendRequest("")
		req.Message.MessageId, req.Message.Parts[0].Content = fmt.Sprint("sent ", i), &pb10.Part_Data{Data: value}
		answer, err := c10.SendMessage(ctx, req)
		expectParts("send", err, func() []*pb10.Part { return firstParts(answer.GetTask()) })

		body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"rpc %d","role":"ROLE_USER","parts":[{"data":%s}]}}}`, i, data)
		_, reported := h.Do(t, http.MethodPost, "/a2a/reader", ana, body, "A2A-Version", "1.0")
		var rpc struct {
			Result struct{ Task struct{ ID string } }
		}
		if err := json.Unmarshal([]byte(reported), &rpc); err != nil || rpc.Result.Task.ID == "" {
			t.Fatalf("%s over JSON-RPC: %s", data, reported)
		}
		id := rpc.Result.Task.ID
		task, err := c10.GetTask(ctx, &pb10.GetTaskRequest{Id: id})
		expectParts("get", err, func() []*pb10.Part { return firstParts(task) })
		page, err := c10.ListTasks(ctx, &pb10.ListTasksRequest{PageSize: pointerTo(int32(1)), HistoryLength: pointerTo(int32(10))})
		expectParts("list", err, func() []*pb10.Part { return firstParts(page.GetTasks()[0]) })
		followed, err := c10.SubscribeToTask(ctx, &pb10.SubscribeToTaskRequest{Id: id})
		if err != nil {
			t.Fatal(err)
		}
		ev, err := followed.Recv()
		expectParts("subscribe", err, func() []*pb10.Part { return firstParts(ev.GetTask()) })
		task, err = c10.CancelTask(ctx, &pb10.CancelTaskRequest{Id: id})
		expectParts("cancel", err, func() []*pb10.Part { return firstParts(task) })

		req = newSendRequest("make " + data)
		req.Message.MessageId = fmt.Sprint("made ", i)
		answer, err = c10.SendMessage(ctx, req)
		expectParts("make", err, func() []*pb10.Part { return answer.GetTask().GetStatus().GetMessage().GetParts() })
		req.Message.MessageId = fmt.Sprint("streamed ", i)
		stream, err := c10.SendStreamingMessage(ctx, req)
		var last *pb10.StreamResponse
		for err == nil {
			if ev, err = stream.Recv(); err == nil {
				last = ev
			}
		}
		if errors.Is(err, io.EOF) {
			err = nil
		}
		expectParts("stream", err, func() []*pb10.Part { return last.GetStatusUpdate().GetStatus().GetMessage().GetParts() })

		older, err := c03.GetTask(ctx, &pb03.GetTaskRequest{Name: "tasks/" + id})
		if err != nil {
			t.Fatalf("get %s over 0.3: %v", data, err)
		}
		object, ok := want.(map[string]any)
		if !ok {
			object = map[string]any{"value": want}
		}
		if diff := cmp.Diff(object, older.GetHistory()[0].GetParts()[0].GetData().GetData().AsMap()); diff != "" {
			t.Errorf("%s over 0.3 (-want +got):\n%s", data, diff)
		}
	}
}
