package function_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"stoa/agentsvc"
	"stoa/agentsvc/tool"
	"stoa/agentsvc/tool/function"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newBuiltin(t *testing.T, handler string, opts function.Options) tool.Tool {
	t.Helper()
	f, err := function.New(handler, opts)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// callTool calls a built-in as an agent does, through a set.
func callTool(t *testing.T, f tool.Tool, arguments string) agentsvc.ToolResult {
	t.Helper()
	s, err := tool.NewSet([]tool.Tool{f}, tool.Options{})
	if err != nil {
		t.Fatal(err)
	}
	res, _ := s.Call(t.Context(), agentsvc.RunScope{}, agentsvc.ToolCall{Name: f.Spec().Name, Arguments: json.RawMessage(arguments)}, "step-1")
	return res
}

func TestTable(t *testing.T) {
	t.Parallel()
	all := []string{"calculator", "current_time", "http_request", "read_file", "search_files", "todo", "web_fetch", "write_file"}
	if diff := cmp.Diff(all, function.HandlerNames()); diff != "" {
		t.Errorf("handlers (-want +got):\n%s", diff)
	}
	for _, handler := range function.HandlerNames() {
		f := newBuiltin(t, handler, function.Options{HTTP: newLocalClient(t), Folder: t.TempDir()})
		spec := f.Spec()
		if spec.Name != handler || spec.Description == "" || !json.Valid(spec.Parameters) {
			t.Errorf("spec = %+v", spec)
		}
		if want := handler != "http_request"; f.IsIdempotent() != want {
			t.Errorf("%s: idempotent = %v, want %v", handler, f.IsIdempotent(), want)
		}
		custom := function.Options{
			Name: "mine", Description: "does it", Parameters: json.RawMessage(`{"type":"object","title":"own"}`), HTTP: newLocalClient(t), Folder: t.TempDir(),
		}
		want := agentsvc.ToolSpec{Name: "mine", Description: "does it", Parameters: custom.Parameters}
		if diff := cmp.Diff(want, newBuiltin(t, handler, custom).Spec()); diff != "" {
			t.Errorf("%s: own spec (-want +got):\n%s", handler, diff)
		}
	}
	var invalid *agentsvc.Error
	_, err := function.New("calculate", function.Options{})
	if !errors.As(err, &invalid) || invalid.Field != "handler" || !strings.Contains(err.Error(), "calculator, current_time, http_request") {
		t.Errorf("unknown handler: %v", err)
	}
	for _, handler := range []string{"http_request", "web_fetch", "read_file", "search_files", "write_file"} {
		if _, err := function.New(handler, function.Options{}); err == nil {
			t.Errorf("%s without what it needs is accepted", handler)
		}
	}
}

func TestCustomParametersAreChecked(t *testing.T) {
	t.Parallel()
	for _, handler := range function.HandlerNames() {
		f := newBuiltin(t, handler, function.Options{Parameters: json.RawMessage(`{}`), HTTP: newLocalClient(t), Folder: t.TempDir()})
		got := callTool(t, f, `{"timezone":7,"expression":7,"url":7,"path":7,"files":7,"items":[{"text":7}]}`)
		if !got.Failed || !strings.Contains(got.Text, "must be a string, not a number") {
			t.Errorf("%s: %+v", handler, got)
		}
	}
}

func TestCurrentTime(t *testing.T) {
	t.Parallel()
	tests := []struct {
		arguments, want string
		failed          bool
	}{
		{`{}`, "2000-01-01T00:00:00Z (Saturday, UTC)", false},
		{`{"timezone":"Europe/Berlin"}`, "2000-01-01T01:00:00+01:00 (Saturday, Europe/Berlin)", false},
		{`{"timezone":"America/New_York"}`, "1999-12-31T19:00:00-05:00 (Friday, America/New_York)", false},
		{`{"timezone":"Mars/Base"}`, `current_time: "Mars/Base" is no IANA time zone; one is for example Europe/Berlin or UTC`, true},
		{`{"timezone":"Local"}`, `current_time: "Local" is no IANA time zone; one is for example Europe/Berlin or UTC`, true},
		{`{"timezone":"../../etc/passwd"}`, `current_time: "../../etc/passwd" is no IANA time zone; one is for example Europe/Berlin or UTC`, true},
	}
	for _, tt := range tests {
		t.Run(tt.arguments, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { // where it is midnight of 2000-01-01 UTC
				got := callTool(t, newBuiltin(t, "current_time", function.Options{}), tt.arguments)
				if got.Text != tt.want || got.Failed != tt.failed {
					t.Errorf("got %q, failed %v; want %q, %v", got.Text, got.Failed, tt.want, tt.failed)
				}
			})
		})
	}
}
